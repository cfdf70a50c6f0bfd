//go:build bench

package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// fleet is the set of host processes of a rig's sandboxes: a shim for each sandbox, and the
// sandbox's processes as children of the shim.
type fleet struct {
	shims map[string]int // PID of the shim by sandbox ID
	trees map[string][]int
	group string // the cgroup of the shims' child processes; empty if there is none
}

// newFleet finds the processes of the rig's sandboxes.
func (g *rig) newFleet() (*fleet, error) {
	f := &fleet{shims: map[string]int{}, trees: map[string][]int{}, group: g.group}
	all := children()
	sandboxes := filepath.Join(g.dir, "sandboxes") + "/"
	for _, pid := range all[os.Getpid()] {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue // the process has just ended
		}
		_, folder, _ := bytes.Cut(args, []byte{0})
		id, ours := strings.CutPrefix(strings.TrimRight(string(folder), "\x00"), sandboxes)
		if !ours {
			continue
		}
		f.shims[id], f.trees[id] = pid, descendants(all, pid)
	}
	if len(f.shims) == 0 {
		return nil, fmt.Errorf("there are no sandboxes in %s", sandboxes)
	}
	return f, nil
}

// cpu returns the CPU time of the fleet so far. It adds the time of the cgroup above all sandboxes
// and the time of the shims, which are outside the cgroup.
func (f *fleet) cpu() time.Duration {
	sum, counted := groupTime(f.group)
	for id, shim := range f.shims {
		if counted {
			sum += processTime(shim)
			continue
		}
		for _, pid := range f.trees[id] {
			sum += processTime(pid)
		}
	}
	return sum
}

// children returns the process IDs on this host, grouped by parent process ID.
func children() map[int][]int {
	out := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, dir := range dirs {
		fields := stat(dir)
		pid, _ := strconv.Atoi(path.Base(dir))
		if parent, err := strconv.Atoi(fields[ppid]); err == nil {
			out[parent] = append(out[parent], pid)
		}
	}
	return out
}

// descendants returns a process and all its descendants.
func descendants(all map[int][]int, pid int) []int {
	out := []int{pid}
	for _, child := range all[pid] {
		out = append(out, descendants(all, child)...)
	}
	return out
}

// These are the indexes of fields in /proc/<pid>/stat, counted from the process name. The file may
// have fewer fields.
const (
	ppid   = 1
	utime  = 11
	stime  = 12
	fields = 13
)

// stat reads the fields of a process. They are empty if the process has ended.
func stat(dir string) [fields]string {
	var out [fields]string
	b, err := os.ReadFile(dir + "/stat")
	if err == nil {
		copy(out[:], strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])))
	}
	return out
}

// tick is the unit of CPU times in /proc/<pid>/stat.
const tick = 10 * time.Millisecond

// processTime returns the CPU time of a process's threads so far, with a resolution of nanoseconds
// if the kernel provides it.
func processTime(pid int) time.Duration {
	dir := fmt.Sprintf("/proc/%d", pid)
	var sum time.Duration
	threads, _ := filepath.Glob(dir + "/task/*/schedstat") // the pattern is valid
	for _, file := range threads {
		b, _ := os.ReadFile(file) // empty if the thread has ended
		ns, _, _ := strings.Cut(string(b), " ")
		n, _ := strconv.ParseInt(ns, 10, 64)
		sum += time.Duration(n)
	}
	if len(threads) == 0 {
		f := stat(dir)
		user, _ := strconv.Atoi(f[utime])
		system, _ := strconv.Atoi(f[stime])
		sum = time.Duration(user+system) * tick
	}
	return sum
}

// treeTime returns the CPU time that a process and its descendants have used so far.
func treeTime(pid int) time.Duration {
	var sum time.Duration
	for _, p := range descendants(children(), pid) {
		sum += processTime(p)
	}
	return sum
}

// memory is the measured memory usage of processes, in MiB.
type memory struct {
	rss     float64 // all mapped pages; shared pages count for every process
	private float64
	shared  float64 // the proportional share of pages that are shared with other processes
}

// memoryOf returns the total memory usage of the processes.
func memoryOf(pids []int) memory {
	var m memory
	for _, pid := range pids {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)) // empty if the process has ended
		var pss, private float64
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 3 || f[2] != "kB" {
				continue
			}
			kb, _ := strconv.ParseFloat(f[1], 64)
			switch mib := kb * brig.KiB / brig.MiB; f[0] {
			case "Rss:":
				m.rss += mib
			case "Pss:":
				pss = mib
			case "Private_Clean:", "Private_Dirty:":
				private += mib
			}
		}
		m.private += private
		m.shared += pss - private
	}
	return m
}

// mean returns the average memory usage of process trees.
func mean(trees [][]int) memory {
	var m memory
	n := float64(max(len(trees), 1))
	for _, pids := range trees {
		one := memoryOf(pids)
		m.rss, m.private, m.shared = m.rss+one.rss/n, m.private+one.private/n, m.shared+one.shared/n
	}
	return m
}
