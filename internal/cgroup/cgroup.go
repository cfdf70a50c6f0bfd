// Package cgroup makes one control group with limits, tells what happened in
// it, and removes it, on cgroup v1, hybrid and v2. It knows nothing of what
// runs inside.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
)

// Limits are what a group may use. A zero field is no limit.
type Limits struct {
	Memory int64   // bytes, swap included
	CPUs   float64 // processors' worth of time
	PIDs   int64   // threads on the host
}

// cpuPeriod is the period of CPU quotas, in microseconds.
const cpuPeriod = 100_000

// Quota is how much time, of which period, a number of processors is, in
// microseconds.
func Quota(cpus float64) (quota int64, period uint64) {
	return max(int64(cpus*cpuPeriod), 1000), cpuPeriod
}

// Group is one control group, under the same path in every hierarchy.
type Group struct {
	path string
	m    cgroups.Manager
}

func config(name string, l Limits) *cgroups.Cgroup {
	r := &cgroups.Resources{SkipDevices: true, Memory: l.Memory}
	if l.Memory > 0 && swapLimit() {
		r.MemorySwap = l.Memory // memory and swap together: no swap
	}
	if l.CPUs > 0 {
		r.CpuQuota, r.CpuPeriod = Quota(l.CPUs)
	}
	if l.PIDs > 0 {
		r.PidsLimit = &l.PIDs
	}
	return &cgroups.Cgroup{Path: name, Resources: r}
}

// swapLimit reports whether this kernel can limit swap.
func swapLimit() bool {
	if cgroups.IsCgroup2UnifiedMode() {
		return true
	}
	_, err := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	return err == nil
}

// wanted are the controllers of cgroup v1 that a group has: those that limit
// it, count what it uses, or can stop it. Each more costs every sandbox time.
var wanted = []string{"memory", "cpu", "cpuacct", "pids", "freezer"}

// open prepares a manager, which makes nothing yet.
func open(cfg *cgroups.Cgroup) (cgroups.Manager, error) {
	m, err := manager.New(cfg)
	if err != nil || cgroups.IsCgroup2UnifiedMode() {
		return m, err
	}
	paths := m.GetPaths()
	maps.DeleteFunc(paths, func(name, _ string) bool { return !slices.Contains(wanted, name) })
	return manager.NewWithPaths(cfg, paths)
}

// New makes the group called name, an absolute path in the hierarchy.
func New(name string, l Limits) (*Group, error) {
	cfg := config(name, l)
	m, err := open(cfg)
	if err != nil {
		return nil, fmt.Errorf("prepare cgroup %s: %w", name, err)
	}
	g := &Group{path: name, m: m}
	for range 4 {
		if err = g.apply(cfg); !errors.Is(err, os.ErrNotExist) {
			break
		}
		// The parent was removed, or made anew, meanwhile: see removeParent.
	}
	if err != nil {
		return nil, errors.Join(err, m.Destroy())
	}
	if cgroups.IsCgroup2UnifiedMode() {
		// A sandbox without one of its processes is broken: kill all or none.
		err := cgroups.WriteFile(m.Path(""), "memory.oom.group", "1")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, errors.Join(fmt.Errorf("set oom group of %s: %w", name, err), m.Destroy())
		}
	}
	return g, nil
}

// apply makes the group's folders and sets its limits.
func (g *Group) apply(cfg *cgroups.Cgroup) error {
	if err := g.m.Apply(-1); err != nil {
		return fmt.Errorf("make cgroup %s: %w", g.path, err)
	}
	if err := g.m.Set(cfg.Resources); err != nil {
		return fmt.Errorf("limit cgroup %s: %w", g.path, err)
	}
	return nil
}

// Open finds a group again by its name. It need not exist.
func Open(name string) (*Group, error) {
	m, err := open(config(name, Limits{}))
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", name, err)
	}
	return &Group{path: name, m: m}, nil
}

// Weights of processor time, against other groups that want it too.
const (
	LowWeight    = 10
	NormalWeight = 1000
)

// SetWeight sets how much of the processors' time the group gets when they
// are busy. It says nothing when they are not.
func (g *Group) SetWeight(w uint64) error {
	file, v := "cpu.shares", w*1024/NormalWeight
	if cgroups.IsCgroup2UnifiedMode() {
		file, v = "cpu.weight", max(w/10, 1)
	}
	return g.write("cpu", file, strconv.FormatUint(v, 10))
}

func (g *Group) write(controller, file, value string) error {
	if cgroups.IsCgroup2UnifiedMode() {
		controller = ""
	}
	dir := g.m.Path(controller)
	if dir == "" {
		return nil // this machine does not have that controller
	}
	if err := cgroups.WriteFile(dir, file, value); err != nil {
		return fmt.Errorf("set %s of %s: %w", file, g.path, err)
	}
	return nil
}

// Folder opens the group's folder, for a process that is born in it, on cgroup
// v2.
func (g *Group) Folder() (*os.File, error) {
	f, err := os.Open(g.m.Path(""))
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", g.path, err)
	}
	return f, nil
}

// Path returns the group's name.
func (g *Group) Path() string { return g.path }

// Join moves a process into the group.
func (g *Group) Join(pid int) error {
	if err := g.m.Apply(pid); err != nil {
		return fmt.Errorf("join cgroup %s: %w", g.path, err)
	}
	return nil
}

// OOMKills reports how many processes of the group the kernel has killed for
// its memory limit.
func (g *Group) OOMKills() (uint64, error) {
	n, err := g.m.OOMKillCount()
	if err != nil {
		return 0, fmt.Errorf("read oom kills of %s: %w", g.path, err)
	}
	return n, nil
}

// Usage is what a group has used: time of processors, and bytes of memory, of
// which Cache could be taken back.
type Usage struct {
	CPU           time.Duration
	Memory, Cache uint64
}

// Usage reads what the group has used.
func (g *Group) Usage() (Usage, error) {
	s, err := g.m.GetStats()
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of %s: %w", g.path, err)
	}
	u := Usage{CPU: time.Duration(s.CpuStats.CpuUsage.TotalUsage), Memory: s.MemoryStats.Usage.Usage, Cache: s.MemoryStats.Cache}
	if cgroups.IsCgroup2UnifiedMode() {
		u.Cache = s.MemoryStats.Stats["file"]
	}
	return u, nil
}

// PIDs lists the processes in the group, in whatever hierarchy they are.
func (g *Group) PIDs() ([]int, error) {
	seen := map[int]bool{}
	for _, dir := range g.m.GetPaths() {
		pids, err := cgroups.GetAllPids(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("list processes of %s: %w", g.path, err)
		}
		for _, pid := range pids {
			seen[pid] = true
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// Kill kills every process in the group.
func (g *Group) Kill() error {
	pids, err := g.PIDs()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d of %s: %w", pid, g.path, err)
		}
	}
	return nil
}

// Destroy kills what is in the group and removes it, and the group above it if
// that is empty then. It waits for the kernel to let go, up to five seconds.
func (g *Group) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		if err := g.Kill(); err != nil {
			return err
		}
		left := g.remove()
		if left == nil {
			g.removeParent()
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup %s: %w", g.path, errors.Join(left, context.Cause(ctx)))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// remove removes the group's folders, those of groups that were made below it
// first. A group that holds even a zombie stays.
func (g *Group) remove() error {
	var errs []error
	for _, dir := range g.m.GetPaths() {
		errs = append(errs, removeTree(dir))
	}
	return errors.Join(errs...)
}

// removeParent removes the group above this one if nothing else is in it.
func (g *Group) removeParent() {
	for _, dir := range g.m.GetPaths() {
		_ = unix.Rmdir(filepath.Dir(dir)) // it is not empty: that is the answer
	}
}

func removeTree(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	entries, readErr := os.ReadDir(dir)
	if readErr != nil {
		return readErr
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err = unix.Rmdir(dir); errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// Children lists the names of the groups directly below parent.
func Children(parent string) ([]string, error) {
	m, err := open(config(parent, Limits{}))
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", parent, err)
	}
	seen := map[string]bool{}
	var out []string
	for _, dir := range m.GetPaths() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() && !seen[e.Name()] && !strings.HasPrefix(e.Name(), ".") {
				seen[e.Name()] = true
				out = append(out, path.Join(parent, e.Name()))
			}
		}
	}
	return out, nil
}

// Mode names what this machine has: "v1", "hybrid" or "v2".
func Mode() string {
	switch {
	case cgroups.IsCgroup2UnifiedMode():
		return "v2"
	case cgroups.IsCgroup2HybridMode():
		return "hybrid"
	default:
		return "v1"
	}
}
