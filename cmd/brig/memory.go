package main

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
)

// readMemoryField reads one line of /proc/meminfo, in bytes. It returns 0 if the
// line does not exist.
func readMemoryField(name string) int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), name+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return n * brig.KiB
		}
	}
	return 0
}

// readTotalMemory returns the memory of the machine.
func readTotalMemory() int64 { return readMemoryField("MemTotal") }

// checkMemory returns an error if the machine has no memory for one more
// sandbox. A sandbox's future memory usage is unknown, so the check only
// protects the machine: it keeps a twentieth of the memory free.
func checkMemory() error {
	free := readMemoryField("MemAvailable")
	if free == 0 || free > readTotalMemory()/20 {
		return nil
	}
	return brig.Errorf(brig.Unavailable, "this machine has no memory left for another sandbox").
		WithHint("remove unused sandboxes, or try again later")
}
