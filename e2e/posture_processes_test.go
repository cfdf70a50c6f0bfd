package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cmdline returns the arguments of a process on the host.
func cmdline(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
}

// parentOf returns the parent of a process on the host, or 0 if the process no
// longer exists.
func parentOf(pid int) int {
	n, _ := strconv.Atoi(statusOf(pid)["PPid"])
	return n
}

// statusOf returns the fields of a process's status file in /proc.
func statusOf(pid int) map[string]string {
	out := map[string]string{}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		out[k] = strings.Join(strings.Fields(v), " ")
	}
	return out
}

// sandboxProcesses lists the shim of a sandbox directory, the shim's descendants, and all other
// processes whose arguments contain the directory.
func sandboxProcesses(dir string) []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	parents := map[int]int{}
	ours := map[int]bool{}
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		parents[pid] = parentOf(pid)
		for _, arg := range cmdline(pid) {
			if pid != os.Getpid() && (arg == dir || strings.Contains(arg, dir+"/")) {
				ours[pid] = true
			}
		}
	}
	var out []int
	for pid := range parents {
		for p := pid; p > 1; p = parents[p] {
			if ours[p] {
				out = append(out, pid)
				break
			}
		}
	}
	return out
}

// role names a process of a sandbox: "shim", "gofer", "sentry", or "stub" for
// the processes in which gVisor runs the guest's instructions.
func role(pid int) string {
	args := cmdline(pid)
	if len(args) == 0 {
		// The stubs do not share the sentry's memory, so they have no arguments.
		return "stub"
	}
	switch name := filepath.Base(args[0]); {
	case name == "brig-shim":
		return "shim"
	case name == "runsc-gofer":
		return "gofer"
	case name == "runsc-sandbox":
		return "sentry"
	default:
		return name
	}
}
