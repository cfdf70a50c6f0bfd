package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
)

// Limits reads the group's limits back from the kernel. A zero field means no
// limit, or a limit that the host does not support.
func (g *Group) Limits() (Limits, error) {
	var l Limits
	memory, pids := "memory.limit_in_bytes", "pids.max"
	unified := cgroups.IsCgroup2UnifiedMode()
	if unified {
		memory = "memory.max"
	}
	var err error
	if l.Memory, err = g.readNumber("memory", memory); err != nil {
		return l, err
	}
	if l.PIDs, err = g.readNumber("pids", pids); err != nil {
		return l, err
	}
	if unified {
		l.CPUs, err = g.share()
		return l, err
	}
	quota, err := g.readNumber("cpu", "cpu.cfs_quota_us")
	if err != nil || quota == 0 {
		return l, err
	}
	period, err := g.readNumber("cpu", "cpu.cfs_period_us")
	if period > 0 {
		l.CPUs = float64(quota) / float64(period)
	}
	return l, err
}

// share reads the CPU limit of cgroup v2: "QUOTA PERIOD", or "max PERIOD".
func (g *Group) share() (float64, error) {
	s, err := g.read("cpu", "cpu.max")
	var quota, period float64
	if n, _ := fmt.Sscanf(s, "%g %g", &quota, &period); n != 2 || period <= 0 {
		return 0, err
	}
	return quota / period, err
}

// unlimited is larger than any real limit. Without a limit, cgroup v1 reports the largest
// number of pages.
const unlimited = 1 << 60

// readNumber reads one number. It returns 0 if there is no limit.
func (g *Group) readNumber(controller, file string) (int64, error) {
	s, err := g.read(controller, file)
	if err != nil || s == "" || s == "max" {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s of %s: %w", file, g.path, err)
	}
	if n < 0 || n >= unlimited {
		n = 0
	}
	return n, nil
}

// read reads a file. It returns "" if the host does not have the controller.
func (g *Group) read(controller, file string) (string, error) {
	if cgroups.IsCgroup2UnifiedMode() {
		controller = ""
	}
	dir := g.m.Path(controller)
	if dir == "" {
		return "", nil
	}
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		if _, statErr := os.Stat(dir); statErr == nil && os.IsNotExist(err) {
			return "", nil
		}
		return "", fmt.Errorf("read %s of %s: %w", file, g.path, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// LimitsSwap reports whether the memory limit of groups includes swap, or
// whether the host has no swap.
func LimitsSwap() bool {
	if supportsSwapLimit() {
		return true
	}
	b, err := os.ReadFile("/proc/swaps")
	return err == nil && strings.Count(strings.TrimSpace(string(b)), "\n") == 0
}
