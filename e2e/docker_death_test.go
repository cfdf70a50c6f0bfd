package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/docker"
)

// checkCrashes verifies the cleanup after crashes of the server and of the Docker Engine.
func (l *dockerLab) checkCrashes(t *testing.T) {
	open := func(t *testing.T, dir string) *docker.Provider {
		return l.provider(t, dir, func(o *docker.Options) { o.Runtime = "runc" })
	}
	create := func(t *testing.T, p *docker.Provider, lease time.Duration, change func(*brig.Spec)) (brig.ID, brig.Instance) {
		t.Helper()
		spec := brig.Spec{Name: "mortal", Image: l.digest(t, p), Limits: brig.DefaultLimitRange().Default}
		if change != nil {
			change(&spec)
		}
		id := brig.ID(fmt.Sprintf("d%d", time.Now().UnixNano()))
		in, err := p.Create(t.Context(), id, spec, time.Now().Add(lease))
		if err != nil {
			t.Fatal(err)
		}
		return id, in
	}
	state := func(t *testing.T, id brig.ID) *container.State {
		t.Helper()
		look, err := l.api.ContainerInspect(t.Context(), "brig-"+string(id), client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return look.Container.State
	}
	ends := func(t *testing.T, id brig.ID) bool {
		t.Helper()
		for end := time.Now().Add(2 * promptTimeout); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if !state(t, id).Running {
				return true
			}
		}
		return false
	}
	// If the server no longer runs, the agent ends the instance when its lease expires.
	t.Run("lease", func(t *testing.T) {
		dir := t.TempDir()
		p := open(t, dir)
		id, in := create(t, p, 4*time.Second, nil)
		stays, lasting := create(t, p, time.Minute, nil)
		p.Close()
		if !ends(t, id) || !state(t, stays).Running {
			t.Errorf("without a server: %+v, %+v", state(t, id), state(t, stays))
		}
		next := open(t, dir)
		recovered, err := next.Recover(t.Context(), id, in.Handle())
		if err != nil {
			t.Fatal(err)
		}
		<-recovered.Done()
		if e := recovered.Exit(); e.Reason != brig.LeaseExpired {
			t.Errorf("it ended with %+v", e)
		}
		other, err := next.Recover(t.Context(), stays, lasting.Handle())
		if err != nil {
			t.Fatal(err)
		}
		if out := shellIn(t, other, "user", "echo here"); out != "here\n" {
			t.Errorf("the other one says %q", out)
		}
		for _, in := range []brig.Instance{recovered, other} {
			if err := in.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	// An ephemeral instance ends with its server. Other instances outlive the server, and the
	// next server removes them.
	t.Run("tether", func(t *testing.T) {
		dir := t.TempDir()
		p := open(t, dir)
		tied, _ := create(t, p, time.Minute, func(s *brig.Spec) { s.Ephemeral = true })
		bound, in := create(t, p, time.Minute, func(s *brig.Spec) { s.Ephemeral, s.Blank = true, true })
		if err := in.Bind(t.Context(), brig.Spec{Name: "mine", Limits: brig.DefaultLimitRange().Default}, time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if n, err := open(t, dir).Sweep(t.Context(), map[brig.ID]bool{bound: true}); n != 0 || err != nil {
			t.Errorf("another process's was swept: %d, %v", n, err)
		}
		p.Close()
		if !ends(t, tied) || !state(t, bound).Running {
			t.Errorf("tied: %+v, bound: %+v", state(t, tied), state(t, bound))
		}
		if n, err := open(t, dir).Sweep(t.Context(), nil); n != 2 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
	})
	// Sweep does not remove foreign containers, regardless of their names and labels.
	t.Run("others", func(t *testing.T) {
		p := open(t, t.TempDir())
		var foreign []string
		for i, labels := range []map[string]string{nil, {"run.brig.instance": "somebody-else", "run.brig.sandbox": "x"}} {
			made, err := l.api.ContainerCreate(t.Context(), client.ContainerCreateOptions{
				Name:       fmt.Sprintf("brig-foreign-%d", i),
				Config:     &container.Config{Image: l.image, Cmd: []string{"sleep", "60"}, Labels: labels, NetworkDisabled: true},
				HostConfig: &container.HostConfig{NetworkMode: "none"},
			})
			if err != nil {
				t.Fatal(err)
			}
			foreign = append(foreign, made.ID)
		}
		_, ephemeral := create(t, p, time.Minute, nil)
		if n, err := p.Sweep(t.Context(), nil); n != 1 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
		<-ephemeral.Done()
		for _, id := range foreign {
			if _, err := l.api.ContainerRemove(t.Context(), id, client.ContainerRemoveOptions{Force: true}); err != nil {
				t.Errorf("somebody else's is gone: %v", err)
			}
		}
	})
	// When the engine is killed, its containers keep running, and the next
	// engine manages them again.
	t.Run("engine", func(t *testing.T) {
		p := open(t, t.TempDir())
		_, in := create(t, p, time.Minute, nil)
		before := shellIn(t, in, "user", "echo kept > /workspace/f; cat /proc/sys/kernel/random/boot_id; stat -c %Z /workspace/f")
		l.end(9)
		if _, err := in.Files().Stat(t.Context(), brig.Path{Name: "/workspace/f"}); err == nil {
			t.Error("without an engine the machine answers")
		}
		l.start(t)
		if out := shellIn(t, in, "user", "cat /workspace/f; cat /proc/sys/kernel/random/boot_id; stat -c %Z /workspace/f"); out != "kept\n"+before {
			t.Errorf("afterwards: %q", out)
		}
		if err := in.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		<-in.Done()
	})
}
