package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Own is the control group of this process with the lowest memory limit.
type Own struct {
	limitFile, usedFile, statFile string
	inactiveField                 string // the field of statFile with the reclaimable memory
	limit                         int64
}

// FindOwn returns the group, or nil if no group has a limit.
func FindOwn() *Own { return findOwn("/proc/self/cgroup", "/sys/fs/cgroup") }

func findOwn(proc, root string) *Own {
	b, err := os.ReadFile(proc)
	if err != nil {
		return nil
	}
	var least *Own
	for line := range strings.Lines(string(b)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		var top string
		var o Own
		switch {
		case part[0] == "0" && part[1] == "":
			top, o = root, Own{limitFile: "memory.max", usedFile: "memory.current", statFile: "memory.stat", inactiveField: "inactive_file"}
		case hasWord(part[1], "memory"):
			top, o = filepath.Join(root, "memory"), Own{limitFile: "memory.limit_in_bytes", usedFile: "memory.usage_in_bytes", statFile: "memory.stat", inactiveField: "total_inactive_file"}
		default:
			continue
		}
		// In a container, the path may be relative to the host's hierarchy. Only a suffix of
		// such a path exists here.
		for dir := filepath.Join(top, part[2]); strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {
			one := o
			for _, f := range []*string{&one.limitFile, &one.usedFile, &one.statFile} {
				*f = filepath.Join(dir, *f)
			}
			if one.limit = readNumber(one.limitFile); one.limit > 0 && (least == nil || one.limit < least.limit) {
				least = &one
			}
		}
	}
	return least
}

// hasWord reports whether a comma-separated list contains a word.
func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// noLimit is the smallest value that means no limit. Without a limit, cgroup v1 reports the
// largest multiple of the page size.
const noLimit = math.MaxInt64 / 2

// readNumber reads a file with one number. It returns 0 for no limit.
func readNumber(file string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n >= noLimit {
		return 0 // "max"
	}
	return n
}

// Limit returns the group's memory limit.
func (o *Own) Limit() int64 { return o.limit }

// Used returns the used memory that the kernel cannot reclaim immediately.
func (o *Own) Used() int64 {
	used := readNumber(o.usedFile)
	b, err := os.ReadFile(o.statFile)
	if err != nil {
		return used
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, o.inactiveField+" "); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err == nil {
				return max(0, used-n)
			}
		}
	}
	return used
}
