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

// workbench is what every benchmark has: an account of the processor time of
// this process and of those that it starts, which no end of a process loses.
type workbench struct {
	*cli
	group string // the cgroup of this process; empty where none can be made
	home  string // where it was before
}

// bench makes a benchmark a command.
func (c *cli) bench(run func(context.Context, *workbench) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		w := &workbench{cli: c}
		w.enter()
		defer w.leave()
		return run(cmd.Context(), w)
	}
}

// enter moves this process into a cgroup of its own, in the hierarchy that
// counts processor time and in no other.
func (w *workbench) enter() {
	home := accountOf(os.Getpid())
	if home == "" {
		return
	}
	group := path.Join(accounts(home), fmt.Sprintf("brig-bench-%d", os.Getpid()))
	if os.Mkdir(group, 0o700) != nil {
		return // then what has ended is asked instead: see spent
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

// spent is the processor time of this process and of those that it started
// and that are in no other group. Without a group it is that of those that
// have ended and were waited for, wherever they were.
func (w *workbench) spent() time.Duration {
	if d, ok := groupTime(w.group); ok {
		return d
	}
	return usage(unix.RUSAGE_SELF) + usage(unix.RUSAGE_CHILDREN)
}

// accountOf is the folder of the cgroup that counts a process's time, on
// cgroup v1 and v2; empty if there is none.
func accountOf(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)) // nothing, if it has ended
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

// accounts is the root of the hierarchy that a group is in.
func accounts(group string) string {
	if rest, v1 := strings.CutPrefix(group, "/sys/fs/cgroup/"); v1 {
		if root := "/sys/fs/cgroup/" + strings.SplitN(rest, "/", 2)[0]; exists(root + "/cpuacct.usage") {
			return root
		}
	}
	return "/sys/fs/cgroup"
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// groupTime is what all in and below a cgroup have used so far, those that
// have ended included.
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
