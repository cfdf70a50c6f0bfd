package e2e

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// TestEgressServerKilled verifies that a sandbox keeps running when its server is killed, but
// that no traffic leaves the sandbox. The next server restores the egress that the sandbox's
// rules allow.
//
//suite:part egress
func TestEgressServerKilled(t *testing.T) {
	if !runInLab(t) {
		return
	}
	l := newEgressLab(t)
	l.name("ok.test", good)
	var arrivals atomic.Int64
	l.serve(80, func(c net.Conn) { arrivals.Add(1); respond(c) })
	dir := dataDir(t)
	config := filepath.Join(t.TempDir(), "brig.yaml")
	if err := os.WriteFile(config, []byte("egress: {resolver: \""+nameOne+"\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, dir, "--config", config)
	c := s.client()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	box, err := c.Create(ctx, brig.Spec{Egress: brig.Egress{Rules: []brig.EgressRule{{Host: "ok.test"}}}})
	if err != nil {
		t.Fatal(err)
	}
	const loop = attempts + `
import time
while True:
    tcp("ok.test", 80, b"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n")
    tcp("` + evilAddr + `", 80)
    time.sleep(0.02)
`
	if _, err := c.Processes(box.Spec.Name).Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"python3", "-u", "-c", loop}}, NoInput: true}); err != nil {
		t.Fatal(err)
	}
	comes := func(within time.Duration) bool {
		was := arrivals.Load()
		for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if arrivals.Load() > was {
				return true
			}
		}
		return false
	}
	t.Run("alive", func(t *testing.T) {
		attack.Mutant(t, "NET-13", "the same program while the server lives", "the server's death")
		if !comes(2 * promptTimeout) {
			t.Error("nothing arrives while the server runs")
		}
		time.Sleep(time.Second) // a process outlives a server crash only after it has run for a moment
	})
	t.Run("killed", func(t *testing.T) {
		attack.Case(t, "NET-13", "the server killed: nothing leaves")
		s.kill()
		time.Sleep(200 * time.Millisecond) // wait for packets in transit
		if comes(2 * time.Second) {
			t.Error("traffic leaves the sandbox without a server")
		}
		if host := hostOf(t, dir).Processes(); len(host) == 0 {
			t.Error("the sandbox is gone, too")
		}
	})
	t.Run("again", func(t *testing.T) {
		s = startServer(t, dir, "--config", config)
		if !comes(2 * promptTimeout) {
			t.Errorf("nothing arrives with the next server: %s", s.errs)
		}
		c = s.client()
		if _, err := c.SetEgress(ctx, box.Spec.Name, brig.Egress{}); err != nil {
			t.Fatal(err)
		}
		if comes(time.Second) {
			t.Error("something leaves without rules")
		}
	})
	if got := l.newArrivals(); len(got) > 0 {
		t.Errorf("%q arrived", got)
	}
}
