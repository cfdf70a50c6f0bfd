package main

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
)

// memoryField reads one line of /proc/meminfo, in bytes; 0 if it is not there.
func memoryField(name string) int64 {
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

// totalMemory is what the machine has.
func totalMemory() int64 { return memoryField("MemTotal") }

// room says why the machine has no room for one more sandbox, if it has none.
// What a sandbox will use is not known; that the machine itself must not run
// out is. A twentieth of it stays free.
func room() error {
	free := memoryField("MemAvailable")
	if free == 0 || free > totalMemory()/20 {
		return nil
	}
	return brig.Errorf(brig.Unavailable, "this machine has no memory left for another sandbox").
		WithHint("end sandboxes that are not used, or try again later")
}
