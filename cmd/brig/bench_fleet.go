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

// fleet is what a rig's sandboxes are on the host: a shim each, and below it
// the sandbox's own processes.
type fleet struct {
	shims map[string]int // by the sandbox's id
	trees map[string][]int
	group string // counts what is below the shims; empty if nothing does
}

// fleet looks for the rig's processes.
func (g *rig) fleet() (*fleet, error) {
	f := &fleet{shims: map[string]int{}, trees: map[string][]int{}, group: g.group}
	all := children()
	sandboxes := filepath.Join(g.dir, "sandboxes") + "/"
	for _, pid := range all[os.Getpid()] {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue // it has just ended
		}
		_, folder, _ := bytes.Cut(args, []byte{0})
		id, ours := strings.CutPrefix(strings.TrimRight(string(folder), "\x00"), sandboxes)
		if !ours {
			continue
		}
		f.shims[id], f.trees[id] = pid, below(all, pid)
	}
	if len(f.shims) == 0 {
		return nil, fmt.Errorf("there are no sandboxes in %s", sandboxes)
	}
	return f, nil
}

// cpu is the processor time of the fleet so far: by the kernel's own account
// of the group above all sandboxes, and of the shims, which are outside it.
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

// children lists the processes of the host by their parents.
func children() map[int][]int {
	out := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, dir := range dirs {
		fields := stat(dir)
		pid, _ := strconv.Atoi(path.Base(dir))
		if parent, err := strconv.Atoi(fields[ppid]); err == nil {
			out[parent] = append(out[parent], pid)
		}
	}
	return out
}

// below lists a process and all that descend from it.
func below(all map[int][]int, pid int) []int {
	out := []int{pid}
	for _, child := range all[pid] {
		out = append(out, below(all, child)...)
	}
	return out
}

// The fields of /proc/<pid>/stat behind the name, of which there may be fewer.
const (
	ppid   = 1
	utime  = 11
	stime  = 12
	fields = 13
)

// stat reads a process's fields; they are empty when it has ended.
func stat(dir string) [fields]string {
	var out [fields]string
	b, err := os.ReadFile(dir + "/stat")
	if err == nil {
		copy(out[:], strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])))
	}
	return out
}

// tick is the unit of times in a process's fields.
const tick = 10 * time.Millisecond

// processTime is what the threads that a process has used so far: to the
// nanosecond where the kernel tells.
func processTime(pid int) time.Duration {
	dir := fmt.Sprintf("/proc/%d", pid)
	var sum time.Duration
	threads, _ := filepath.Glob(dir + "/task/*/schedstat") // the pattern is right
	for _, file := range threads {
		b, _ := os.ReadFile(file) // nothing, if it has ended
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

// treeTime is what a process and those below it have used so far.
func treeTime(pid int) time.Duration {
	var sum time.Duration
	for _, p := range below(children(), pid) {
		sum += processTime(p)
	}
	return sum
}

// memory is what processes use of it, in MiB.
type memory struct {
	rss     float64 // all that is mapped, shared pages counted by everyone
	private float64
	shared  float64 // its part of the pages that it shares with others
}

// memoryOf adds up the memory of some processes.
func memoryOf(pids []int) memory {
	var m memory
	for _, pid := range pids {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)) // nothing, if it has ended
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

// mean is the memory of one of several trees.
func mean(trees [][]int) memory {
	var m memory
	n := float64(max(len(trees), 1))
	for _, pids := range trees {
		one := memoryOf(pids)
		m.rss, m.private, m.shared = m.rss+one.rss/n, m.private+one.private/n, m.shared+one.shared/n
	}
	return m
}
