package cgroup_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"

	"github.com/brig-run/brig/internal/cgroup"
)

func newGroup(t *testing.T, l cgroup.Limits) *cgroup.Group {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a cgroup")
	}
	g, err := cgroup.New("/brig-test/"+strconv.Itoa(os.Getpid())+"-"+t.Name(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// run starts a shell script inside the group.
func run(t *testing.T, g *cgroup.Group, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read go; "+script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Join(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	in.Write([]byte("go\n"))
	in.Close()
	return cmd
}

func TestOOMIsCounted(t *testing.T) {
	g := newGroup(t, cgroup.Limits{Memory: 16 << 20})
	notified := make(chan struct{})
	stop, err := g.WatchOOM(func() { close(notified) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	run(t, g, `a=x; while :; do a=$a$a; done`).Wait()
	if n, err := g.OOMKills(); err != nil || n == 0 {
		t.Errorf("OOMKills = %d, %v; want some", n, err)
	}
	if !cgroups.IsCgroup2UnifiedMode() {
		select {
		case <-notified:
		case <-time.After(30 * time.Second):
			t.Error("WatchOOM said nothing")
		}
	}
}

// TestKillIsNotOOM is the control of TestOOMIsCounted: a program that kills itself does not
// count as an OOM kill.
func TestKillIsNotOOM(t *testing.T) {
	g := newGroup(t, cgroup.Limits{Memory: 64 << 20})
	run(t, g, `kill -9 $$`).Wait()
	if n, err := g.OOMKills(); err != nil || n != 0 {
		t.Errorf("OOMKills = %d, %v; want none", n, err)
	}
}

func TestDestroyKills(t *testing.T) {
	g := newGroup(t, cgroup.Limits{})
	cmd := run(t, g, `sleep 100 & sleep 100`)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := g.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the process ended well")
	}
	if pids, err := g.PIDs(); err != nil || len(pids) != 0 {
		t.Errorf("left: %v, %v", pids, err)
	}
}

// TestEnterMovesOnlyNewProcesses verifies that processes started between Enter and leave are in the
// group, and that no thread of this process is in the group afterwards.
func TestEnterMovesOnlyNewProcesses(t *testing.T) {
	g := newGroup(t, cgroup.Limits{Memory: 64 << 20})
	leave, err := g.Enter()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("not on cgroup v2, and not in a build with cgo")
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if err := leave(); err != nil {
		t.Fatal(err)
	}
	if in, err := g.Contains(cmd.Process.Pid); err != nil || !in {
		t.Errorf("the child is in its group: %v, %v", in, err)
	}
	if in, err := g.Contains(os.Getpid()); err != nil || in {
		t.Errorf("the parent is in the group: %v, %v", in, err)
	}
	if pids, err := g.PIDs(); err != nil || len(pids) != 1 {
		t.Errorf("in the group: %v, %v", pids, err)
	}
}

// TestUsageIsMeasured compares the usage of a group with what a program in it used.
func TestUsageIsMeasured(t *testing.T) {
	g := newGroup(t, cgroup.Limits{})
	file := t.TempDir() + "/file"
	cmd := run(t, g, "dd if=/dev/zero of="+file+" bs=1M count=32 2>/dev/null; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	u, err := g.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if u.CPU < used/2 || u.CPU > 2*used+time.Second {
		t.Errorf("%v of CPU time, the program used %v", u.CPU, used)
	}
	// The pages of the file stay in the cache on most file systems.
	if u.Memory < u.Cache || u.Memory > 1<<30 {
		t.Errorf("%+v", u)
	}
}

func BenchmarkUsage(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root to make a cgroup")
	}
	g, err := cgroup.New("/brig-test/"+strconv.Itoa(os.Getpid())+"-"+b.Name(), cgroup.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := g.Destroy(context.Background()); err != nil {
			b.Error(err)
		}
	}()
	for b.Loop() {
		if _, err := g.Usage(); err != nil {
			b.Fatal(err)
		}
	}
}
