package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf16"
)

// searchForms returns the texts to search for: each half of the value, and the whole value in its
// most likely encodings. The value ends in letters and digits, which most encodings leave
// unchanged.
func searchForms(value string) []string {
	r := value[len(value)-26:]
	out := []string{r[:13], r[13:], hex.EncodeToString([]byte(r)), strings.ToUpper(hex.EncodeToString([]byte(r)))}
	for offset, skip := range []int{0, 2, 3} {
		coded := base64.RawStdEncoding.EncodeToString(append(make([]byte, offset), r...))
		out = append(out, coded[skip:(offset+len(r))*8/6])
	}
	for _, big := range []bool{false, true} {
		var b strings.Builder
		for _, u := range utf16.Encode([]rune(r)) {
			if big {
				u = u<<8 | u>>8
			}
			b.Write([]byte{byte(u), byte(u >> 8)})
		}
		out = append(out, b.String())
	}
	return out
}

// within returns the number of occurrences of a value's search forms in b.
func within(b []byte, value string) (n int) {
	for _, w := range searchForms(value) {
		n += bytes.Count(b, []byte(w))
	}
	return n
}

// countInGuest returns the number of occurrences of a value in the guest's memory and files, and in
// the memory of the sandbox's host processes.
func countInGuest(t *testing.T, dir, value string) int {
	t.Helper()
	words, n := searchForms(value), 0
	for _, k := range guestMemory(t, dir, words...) {
		n += k
	}
	for _, pid := range sandboxProcesses(dir) {
		if r := role(pid); r == "sentry" || r == "gofer" || r == "shim" {
			n += ownMemory(t, pid, words)
		}
	}
	return n
}

// ownMemory counts the occurrences of words in the private memory of a process: the resident
// parts of its heap and stacks.
func ownMemory(t *testing.T, pid int, words []string) (n int) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0 // the process has ended
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return 0
	}
	defer mem.Close()
	pages, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	const page, maxMapping = 4096, 1 << 30
	searched := 0
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "rw") ||
			strings.Contains(line, "/memfd:") || to-from > maxMapping {
			continue // mapped files are searched separately
		}
		present := make([]byte, (to-from)/page*8)
		if k, err := pages.ReadAt(present, int64(from/page*8)); err != nil || k < len(present) {
			continue
		}
		for at := from; at < to; {
			begin := at
			for at < to && present[(at-from)/page*8+7]&0xc0 != 0 { // in memory, or swapped out
				at += page
			}
			if at == begin {
				at += page
				continue
			}
			b := make([]byte, at-begin)
			k, _ := mem.ReadAt(b, int64(begin)) // the mapping may have shrunk meanwhile
			n, searched = n+countAll(b[:k], words), searched+k
		}
	}
	if searched == 0 && len(maps) > 0 {
		t.Errorf("nothing of the memory of process %d (%s) was looked at", pid, role(pid))
	}
	return n
}

func countAll(b []byte, words []string) (n int) {
	for _, w := range words {
		n += bytes.Count(b, []byte(w))
	}
	return n
}
