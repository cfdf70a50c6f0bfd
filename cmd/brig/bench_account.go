//go:build bench

package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// workbench is the state that all benchmarks share. It measures the CPU time of this process and of
// its children, including those that have ended.
type workbench struct {
	benchCommands
	group string // the cgroup of this process; empty if none can be created
	home  string // the previous cgroup of the process
}

// wrapBenchmark wraps a benchmark in a command.
func (c benchCommands) wrapBenchmark(run func(context.Context, *workbench) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		w := &workbench{benchCommands: c}
		w.enter()
		defer w.leave()
		return run(cmd.Context(), w)
	}
}

// enter moves this process into its own cgroup, but only in the hierarchy that accounts for CPU
// time.
func (w *workbench) enter() {
	home := accountOf(os.Getpid())
	if home == "" {
		return
	}
	group := path.Join(accounts(home), fmt.Sprintf("brig-bench-%d", os.Getpid()))
	if os.Mkdir(group, 0o700) != nil {
		return // cpuTime then counts only children that have ended
	}
	if join(group) != nil {
		_ = unix.Rmdir(group)
		return
	}
	w.group, w.home = group, home
}

func (w *workbench) leave() {
	if w.group == "" {
		return
	}
	err := join(w.home)
	if err == nil {
		err = unix.Rmdir(w.group)
	}
	if err != nil {
		fmt.Fprintln(w.stderr, "leave", w.group+":", err)
	}
}

func join(group string) error {
	return os.WriteFile(path.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// cpuTime returns the CPU time of this process and of its children in the same cgroup. If
// there is no cgroup, it returns the CPU time of this process and of the children that it has
// waited for.
func (w *workbench) cpuTime() time.Duration {
	if d, ok := groupTime(w.group); ok {
		return d
	}
	return usage(unix.RUSAGE_SELF) + usage(unix.RUSAGE_CHILDREN)
}

// accountOf returns the directory of the cgroup that accounts for a process's CPU time, for cgroup
// v1 and v2. It returns an empty string if there is no such cgroup.
func accountOf(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)) // empty if the process has ended
	unified := ""
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(f) < 3:
		case strings.Contains(f[1], "cpuacct"):
			return path.Join("/sys/fs/cgroup", f[1], f[2])
		case f[1] == "":
			unified = path.Join("/sys/fs/cgroup", f[2])
		}
	}
	if _, counted := groupTime(unified); !counted {
		return ""
	}
	return unified
}

// accounts returns the root directory of the hierarchy that contains a cgroup.
func accounts(group string) string {
	if rest, v1 := strings.CutPrefix(group, "/sys/fs/cgroup/"); v1 {
		if root := "/sys/fs/cgroup/" + strings.SplitN(rest, "/", 2)[0]; fileExists(root + "/cpuacct.usage") {
			return root
		}
	}
	return "/sys/fs/cgroup"
}

func fileExists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// groupTime returns the CPU time of all processes in and below a cgroup, including those that have
// ended.
func groupTime(group string) (_ time.Duration, counted bool) {
	if group == "" {
		return 0, false
	}
	if b, err := os.ReadFile(group + "/cpuacct.usage"); err == nil {
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		return time.Duration(n), err == nil
	}
	b, _ := os.ReadFile(group + "/cpu.stat")
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return time.Duration(n) * time.Microsecond, err == nil
		}
	}
	return 0, false
}
