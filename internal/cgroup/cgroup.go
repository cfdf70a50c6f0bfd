// Package cgroup creates a control group with limits, reports its usage and
// events, and removes it. It supports cgroup v1, hybrid and v2. It does not
// depend on the programs in the group.
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

// Limits holds the resource limits of a group. A zero field means no limit.
type Limits struct {
	Memory int64   // bytes, including swap
	CPUs   float64 // CPU time per wall time
	PIDs   int64   // threads on the host
}

// cpuPeriod is the period of CPU quotas, in microseconds.
const cpuPeriod = 100_000

// Quota converts a number of processors to a CPU quota and its period, in
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
	if l.Memory > 0 && supportsSwapLimit() {
		r.MemorySwap = l.Memory // memory and swap together: disables swap
	}
	if l.CPUs > 0 {
		r.CpuQuota, r.CpuPeriod = Quota(l.CPUs)
	}
	if l.PIDs > 0 {
		r.PidsLimit = &l.PIDs
	}
	return &cgroups.Cgroup{Path: name, Resources: r}
}

// supportsSwapLimit reports whether this kernel can limit swap.
func supportsSwapLimit() bool {
	if cgroups.IsCgroup2UnifiedMode() {
		return true
	}
	_, err := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	return err == nil
}

// wanted lists the cgroup v1 controllers of a group: the files that limit it,
// measure its usage, or freeze it. Each additional controller slows down the
// start of every sandbox.
var wanted = []string{"memory", "cpu", "cpuacct", "pids", "freezer"}

// newManager prepares a manager. It creates no directories yet.
func newManager(cfg *cgroups.Cgroup) (cgroups.Manager, error) {
	m, err := manager.New(cfg)
	if err != nil || cgroups.IsCgroup2UnifiedMode() {
		return m, err
	}
	paths := m.GetPaths()
	maps.DeleteFunc(paths, func(name, _ string) bool { return !slices.Contains(wanted, name) })
	return manager.NewWithPaths(cfg, paths)
}

// New creates the group with this name, an absolute path in the hierarchy.
func New(name string, l Limits) (*Group, error) {
	cfg := config(name, l)
	m, err := newManager(cfg)
	if err != nil {
		return nil, fmt.Errorf("prepare cgroup %s: %w", name, err)
	}
	g := &Group{path: name, m: m}
	for range 16 {
		if err = g.apply(cfg); !errors.Is(err, os.ErrNotExist) {
			break
		}
		// Another process removed or recreated a parent group concurrently. See removeParents.
	}
	if err != nil {
		return nil, errors.Join(err, m.Destroy())
	}
	if cgroups.IsCgroup2UnifiedMode() {
		// A sandbox cannot continue if one of its processes is killed, so the kernel kills all
		// processes of the group together.
		err := cgroups.WriteFile(m.Path(""), "memory.oom.group", "1")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, errors.Join(fmt.Errorf("set oom group of %s: %w", name, err), m.Destroy())
		}
	}
	return g, nil
}

// apply creates the group's directories and sets its limits.
func (g *Group) apply(cfg *cgroups.Cgroup) error {
	if err := g.m.Apply(-1); err != nil {
		return fmt.Errorf("make cgroup %s: %w", g.path, err)
	}
	if err := g.m.Set(cfg.Resources); err != nil {
		return fmt.Errorf("limit cgroup %s: %w", g.path, err)
	}
	return nil
}

// Open returns the group with the given name. The group need not exist.
func Open(name string) (*Group, error) {
	m, err := newManager(config(name, Limits{}))
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", name, err)
	}
	return &Group{path: name, m: m}, nil
}

// CPU weights, relative to other groups.
const (
	LowWeight    = 10
	NormalWeight = 1000
)

// SetWeight sets the group's share of CPU time under contention. The weight has no effect while
// CPUs are idle.
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
		return nil // the host does not have the controller
	}
	if err := cgroups.WriteFile(dir, file, value); err != nil {
		return fmt.Errorf("set %s of %s: %w", file, g.path, err)
	}
	return nil
}

// Folder opens the group's directory. On cgroup v2, a new process can start
// directly in it.
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

// OOMKills returns the number of processes in the group that the kernel has
// killed because of its memory limit.
func (g *Group) OOMKills() (uint64, error) {
	n, err := g.m.OOMKillCount()
	if err != nil {
		return 0, fmt.Errorf("read oom kills of %s: %w", g.path, err)
	}
	return n, nil
}

// Usage is the resource usage of a group: CPU time and bytes of memory. The
// kernel can reclaim the Cache part.
type Usage struct {
	CPU           time.Duration
	Memory, Cache uint64
}

// Usage reads the current usage of the group. It reads three files instead of the statistics of all
// controllers, because a server reads the usage of each sandbox every few seconds.
func (g *Group) Usage() (Usage, error) {
	dir, current, cache := g.m.Path("memory"), "memory.usage_in_bytes", "cache "
	if cgroups.IsCgroup2UnifiedMode() {
		dir, current, cache = g.m.Path(""), "memory.current", "file "
	}
	cpu, err := g.CPU()
	if err != nil {
		return Usage{}, err
	}
	u := Usage{CPU: cpu}
	if dir == "" { // without a memory controller
		return u, nil
	}
	b, err := cgroups.ReadFile(dir, current)
	if err == nil {
		u.Memory, err = strconv.ParseUint(strings.TrimSpace(b), 10, 64)
	}
	if err == nil {
		b, err = cgroups.ReadFile(dir, "memory.stat")
	}
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of %s: %w", g.path, err)
	}
	for line := range strings.Lines(b) {
		if v, ok := strings.CutPrefix(line, cache); ok {
			if u.Cache, err = strconv.ParseUint(strings.TrimSpace(v), 10, 64); err != nil {
				return Usage{}, fmt.Errorf("read usage of %s: %w", g.path, err)
			}
			break
		}
	}
	return u, nil
}

// CPU reads the CPU time that the group and its children have used.
func (g *Group) CPU() (time.Duration, error) {
	if cgroups.IsCgroup2UnifiedMode() {
		b, err := cgroups.ReadFile(g.m.Path(""), "cpu.stat")
		if err != nil {
			return 0, fmt.Errorf("read cpu.stat of %s: %w", g.path, err)
		}
		for line := range strings.Lines(b) {
			if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
				n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
				return time.Duration(n) * time.Microsecond, err
			}
		}
		return 0, fmt.Errorf("no usage in cpu.stat of %s", g.path)
	}
	b, err := cgroups.ReadFile(g.m.Path("cpuacct"), "cpuacct.usage")
	if err != nil {
		return 0, fmt.Errorf("read cpuacct.usage of %s: %w", g.path, err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(b), 10, 64)
	return time.Duration(n), err
}

// PIDs lists the processes in the group, across all hierarchies.
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

// Destroy kills the processes of the group, removes the group and then its
// empty parents. It waits up to five seconds for the kernel.
func (g *Group) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		if err := g.Kill(); err != nil {
			return err
		}
		err := g.remove()
		if err == nil {
			g.removeParents()
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup %s: %w", g.path, errors.Join(err, context.Cause(ctx)))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// remove removes the directories of the child groups, and then the group's own. The kernel does
// not remove a group that contains a process, even a zombie.
func (g *Group) remove() error {
	var errs []error
	for _, dir := range g.m.GetPaths() {
		errs = append(errs, RemoveTree(dir))
	}
	return errors.Join(errs...)
}

// removeParents removes the parents that have become empty. It keeps the top-level group, which
// all data folders share, unless the top-level group is the only parent.
func (g *Group) removeParents() {
	above := max(strings.Count(path.Clean(g.path), "/")-2, 1)
	for _, dir := range g.m.GetPaths() {
		for range above {
			dir = filepath.Dir(dir)
			if unix.Rmdir(dir) != nil {
				break // the parent is not empty
			}
		}
	}
}

// RemoveEmpty removes a group and its empty parents, unless the group contains
// processes or other groups.
func RemoveEmpty(name string) error {
	g, err := Open(name)
	if err != nil {
		return err
	}
	for _, dir := range g.m.GetPaths() {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("remove cgroup %s: %w", name, err)
		}
	}
	g.removeParents()
	return nil
}

// RemoveTree removes the directories of a group's children and then the directory of the group.
// It succeeds if the directory does not exist.
func RemoveTree(dir string) error {
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
			if err := RemoveTree(filepath.Join(dir, e.Name())); err != nil {
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
	m, err := newManager(config(parent, Limits{}))
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

// Mode returns the cgroup mode of the host: "v1", "hybrid" or "v2".
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
