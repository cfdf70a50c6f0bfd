package gvisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
)

// inspectedAreas lists the areas that the host can inspect in the sentry.
func inspectedAreas() []brig.Area {
	return []brig.Area{brig.AreaIsolation, brig.AreaMemory, brig.AreaCPUs, brig.AreaProcesses, brig.AreaDisk, brig.AreaEgress}
}

// sentryInspection is an inspection of one sandbox's sentry.
type sentryInspection struct {
	i     *instance
	pid   int // the sentry's process
	areas map[brig.Area]*brig.Enforcement
}

// Enforced implements brig.Instance. It reads all values from the host's kernel
// and the running sentry, not from the order.
func (i *instance) Enforced(ctx context.Context) (map[brig.Area]brig.Enforcement, error) {
	s := &sentryInspection{i: i, areas: map[brig.Area]*brig.Enforcement{}}
	now := time.Now().UTC()
	for a, e := range i.p.enforcement {
		e.At = now
		s.areas[a] = &e
	}
	var err error
	if s.pid, err = i.l.sentry(ctx); err == nil {
		err = s.inspect()
	}
	if err != nil {
		select {
		case <-i.done:
			return nil, brig.Errorf(brig.FailedPrecondition, "the sandbox has ended").Because(err)
		default:
		}
		for _, a := range inspectedAreas() { // older shims do not support this request
			s.areas[a].Lower(brig.LevelGaps, "the host cannot inspect the sandbox's processes")
		}
		i.p.Log.WarnContext(ctx, "failed to inspect the processes of a sandbox", "sandbox", i.id, "err", err)
	}
	out := map[brig.Area]brig.Enforcement{}
	for a, e := range s.areas {
		out[a] = *e
	}
	return out, nil
}

// inspect checks the sentry's process.
func (s *sentryInspection) inspect() error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.pid))
	if err != nil {
		return fmt.Errorf("read the sentry's arguments: %w", err)
	}
	args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	if !slices.Contains(args, string(s.i.id)) {
		return fmt.Errorf("process %d is not the sentry of %s", s.pid, s.i.id)
	}
	return errors.Join(s.checkPosture(), s.readLimits(), s.measureDisk(args), s.network(args))
}

// checkPosture checks the sentry's isolation from the host.
func (s *sentryInspection) checkPosture() error {
	status, err := statusOf(s.pid)
	if err != nil {
		return err
	}
	e := s.areas[brig.AreaIsolation]
	e.AddEvidence("the sentry has seccomp mode %s, no-new-privileges %s, capabilities %s", status["Seccomp"], status["NoNewPrivs"], status["CapEff"])
	if status["Seccomp"] != "2" {
		e.Lower(brig.LevelGaps, "the sentry has no seccomp filter")
	}
	if status["NoNewPrivs"] != "1" {
		e.Lower(brig.LevelGaps, "the sentry may gain privileges")
	}
	var shared []string
	for _, ns := range []string{"mnt", "net", "pid", "ipc", "uts"} {
		separate, err := s.inOtherNamespace(ns)
		if err != nil {
			return err
		}
		if !separate {
			shared = append(shared, ns)
		}
	}
	if len(shared) > 0 {
		e.Lower(brig.LevelGaps, "the sentry is in the host's namespaces: %s", strings.Join(shared, ", "))
	} else {
		e.AddEvidence("the sentry is in none of the host's mount, network, process, ipc and uts namespaces")
	}
	return nil
}

// inOtherNamespace reports whether the sentry and the server are in different
// namespaces of the given type.
func (s *sentryInspection) inOtherNamespace(ns string) (bool, error) {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", s.pid, ns))
	if err != nil {
		return false, fmt.Errorf("read the sentry's namespace: %w", err)
	}
	ours, err := os.Readlink("/proc/self/ns/" + ns)
	return theirs != ours, err
}

// readLimits reads the effective limits on the sandbox's memory, CPUs and threads.
func (s *sentryInspection) readLimits() error {
	memory, cpus, processes := s.areas[brig.AreaMemory], s.areas[brig.AreaCPUs], s.areas[brig.AreaProcesses]
	want := s.i.order.Limits
	g, err := s.i.group()
	if err != nil {
		return err
	}
	if g == nil {
		return s.readAffinity(cpus, want.CPUs)
	}
	in, err := g.Contains(s.pid)
	if err != nil {
		return err
	}
	if !in {
		for _, e := range []*brig.Enforcement{memory, cpus} {
			e.Lower(brig.LevelNone, "the sentry is not in its cgroup")
		}
		processes.Lower(brig.LevelGaps, "the sentry is not in its cgroup")
		return nil
	}
	has, err := g.Limits()
	if err != nil {
		return err
	}
	bound := func(e *brig.Enforcement, l brig.Level, what string, has, want float64) {
		switch {
		case has == 0:
			e.Lower(l, "the cgroup has no limit of %s", what)
		case has > want:
			e.Lower(l, "the cgroup allows %s of %g, and the limit is %g", what, has, want)
		default:
			e.AddEvidence("the sentry is in a cgroup that is held to %s of %g", what, has)
		}
	}
	bound(memory, brig.LevelNone, "memory", float64(has.Memory), float64(want.Memory))
	bound(cpus, brig.LevelNone, "processors", has.CPUs, max(want.CPUs, 0.01)*1.001)
	bound(processes, brig.LevelGaps, "threads on the host", float64(has.PIDs), float64(guest.SentryThreads(want.Processes)))
	return nil
}

// readAffinity reads the number of CPUs that a sandbox without a cgroup may use.
func (s *sentryInspection) readAffinity(cpus *brig.Enforcement, want float64) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(s.pid, &set); err != nil {
		return fmt.Errorf("read the sentry's affinity: %w", err)
	}
	n, allowed := set.Count(), int(math.Ceil(want))
	if n > allowed && allowed < runtime.NumCPU() {
		cpus.Lower(brig.LevelNone, "the sentry may use %d processors, and the limit is %g", n, want)
		return nil
	}
	cpus.AddEvidence("the sentry is bound to %d of %d processors", n, runtime.NumCPU())
	return nil
}

// measureDisk measures the writable layer, which is an unlinked file.
func (s *sentryInspection) measureDisk(args []string) error {
	e := s.areas[brig.AreaDisk]
	size := fmt.Sprintf("root:dir=%s,size=%d", s.i.l.path(overlayDir), s.i.order.Limits.Disk)
	if !slices.Contains(args, "--overlay2="+size) {
		e.Lower(brig.LevelNone, "the sentry was not told the size of its writable layer")
		return nil
	}
	layers, used := s.i.l.layersOf(s.pid), int64(0)
	for _, l := range layers {
		used += s.i.l.allocatedLayer(l)
	}
	switch {
	case len(layers) == 0:
		e.Lower(brig.LevelGaps, "the host does not see the writable layer")
	case used > s.i.order.Limits.Disk+brig.MiB:
		e.Lower(brig.LevelNone, "the writable layer takes %d bytes, and the limit is %d", used, s.i.order.Limits.Disk)
	default:
		e.AddEvidence("the writable layer takes %d of %d bytes", used, s.i.order.Limits.Disk)
	}
	return nil
}

// network checks the interfaces and sockets over which the sentry could send
// data.
func (s *sentryInspection) network(args []string) error {
	e := s.areas[brig.AreaEgress]
	if separate, err := s.inOtherNamespace("net"); err != nil || !separate {
		if err == nil {
			e.Lower(brig.LevelNone, "the sentry is in the host's network")
		}
		return err
	}
	names, err := interfacesOf(s.pid)
	if err != nil {
		return err
	}
	if others := slices.DeleteFunc(names, func(n string) bool { return n == "lo" }); len(others) > 0 {
		e.Lower(brig.LevelNone, "the sentry's network has interfaces: %s", strings.Join(others, ", "))
	} else {
		e.AddEvidence("the sentry is in a network without an interface")
	}
	if !slices.Contains(args, "--network=none") {
		e.Lower(brig.LevelGaps, "the guest's sockets are those of the host's kernel, in a network without an interface")
	} else {
		e.AddEvidence("the sentry was started without a network")
	}
	return nil
}

// interfacesOf lists the network interfaces of a process.
func interfacesOf(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		return nil, fmt.Errorf("read the sentry's interfaces: %w", err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			out = append(out, strings.TrimSpace(name))
		}
	}
	return out, nil
}

// statusOf reads a process's status from the host's kernel.
func statusOf(pid int) (map[string]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, fmt.Errorf("read the sentry's status: %w", err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		out[k] = strings.TrimSpace(v)
	}
	return out, nil
}

// sentry requests the sentry's process ID from the shim.
func (l layout) sentry(ctx context.Context) (int, error) {
	c, err := l.openRequest(ctx, request{Op: "sentry"})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	line, err := bufio.NewReaderSize(c, oneRead).ReadBytes('\n')
	if err != nil {
		return 0, fmt.Errorf("ask shim: %w", err)
	}
	var a response
	if err := json.Unmarshal(line, &a); err != nil {
		return 0, fmt.Errorf("decode shim's answer: %w", err)
	}
	if a.Error != "" || a.PID <= 0 {
		return 0, fmt.Errorf("shim: no sentry: %s", a.Error)
	}
	return a.PID, nil
}
