package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// guestMemory searches a guest's memory and writable files from the host, through the open files
// of the sentry. It returns the number of occurrences of each word.
func guestMemory(t *testing.T, dir string, words ...string) []int {
	t.Helper()
	found, searched := make([]int, len(words)), int64(0)
	for _, pid := range sandboxProcesses(dir) {
		if role(pid) != "sentry" {
			continue
		}
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			link, err := os.Readlink(fd)
			if err != nil || !strings.HasPrefix(link, "/memfd:") && !strings.HasPrefix(link, dir+"/overlay/") {
				continue
			}
			f, err := os.Open(fd)
			if err != nil {
				t.Fatal(err)
			}
			searched += searchFile(t, f, words, found)
			f.Close()
		}
	}
	if searched == 0 {
		t.Error("nothing of the guest was looked at")
	}
	return found
}

// searchFile adds the number of occurrences of each word in a sparse file to found, and returns
// the number of bytes outside its holes.
func searchFile(t *testing.T, f *os.File, words []string, found []int) (searched int64) {
	t.Helper()
	const overlap = 256 // longer than any word
	buf := make([]byte, 1<<20)
	for at := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return searched // the rest is a hole
		}
		to, err2 := unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		for at = from; at < to; {
			n, err := f.ReadAt(buf[:min(int64(len(buf)), to-at)], at)
			if err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			for i, w := range words {
				found[i] += bytes.Count(buf[:n], []byte(w))
			}
			searched += int64(n)
			if at += int64(n); at < to && n > overlap {
				at -= overlap
			}
			if n == 0 {
				return searched // the file was truncated concurrently
			}
		}
	}
}
