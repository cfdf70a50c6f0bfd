package e2e

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
)

// signals is a program that repeatedly sends every signal to every process.
const signals = `
import os, signal, sys, time
for s in range(1, 65):
    if s not in (9, 19, 32, 33):
        try: signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError): pass
pids = [int(p) for p in os.listdir("/proc") if p.isdigit()]
end, n = time.time() + %g, 0
while time.time() < end:
    for pid in pids + [1]:
        if pid == os.getpid(): continue
        for s in (1, 2, 3, 6, 9, 10, 11, 12, 15, 17, 18, 19, 23, 29, 34, 64):
            try: os.kill(pid, s)
            except OSError: pass
            n += 1
    try: os.kill(-1, 10)
    except OSError: pass
print(n)`

// TestAttackSignals verifies that signals reach only processes of the same user in the sandbox,
// and neither the agent nor processes outside the sandbox.
//
//suite:part hostile
func TestAttackSignals(t *testing.T) {
	needRoot(t)
	p, images := newProvider(t, t.TempDir())
	neighbor := newMachine(t, p, images, "beside", nil)
	for _, user := range []string{"user", "root"} {
		m := newMachine(t, p, images, brig.ID("signals-"+user), nil)
		sentry, agent := m.sentry(), neighbor.sentry()
		flood := make(chan string, 1)
		go func() {
			res, out, err := m.try(brig.Command{Argv: []string{"python3", "-c", fmt.Sprintf(signals, 3.0)}, User: user})
			flood <- fmt.Sprintf("%+v %v %s", res, err, out)
		}()
		var took []time.Duration
		for range 10 {
			start := time.Now()
			if out := neighbor.sh("user", "echo fine"); out != "fine\n" {
				t.Errorf("the neighbour: %q", out)
			}
			took = append(took, time.Since(start))
			time.Sleep(200 * time.Millisecond)
		}
		printed := <-flood
		// The flood may have killed concurrent commands, but later commands must work.
		_, out, err := m.try(brig.Command{Shell: "echo alive"})
		escaped := err != nil || out != "alive\n" || m.sentry() != sentry || neighbor.sentry() != agent || slices.Max(took) > promptTimeout
		if escaped {
			t.Errorf("as %s: %q, %v; the neighbour took up to %v; the flood: %s", user, out, err, slices.Max(took), printed)
		}
		attack.RecordCase("RES-11", "every signal to everybody, as "+user, escaped)
	}
	// The control: a signal kills a process of the same user that is not a sandbox's agent.
	victim := exec.Command("sleep", "60")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1} {
		_ = victim.Process.Signal(sig)
	}
	state := make(chan error, 1)
	go func() { state <- victim.Wait() }()
	seen := false
	select {
	case <-state:
		seen = true
	case <-time.After(promptTimeout):
		_ = victim.Process.Kill()
		t.Errorf("on the host nobody dies of it")
	}
	attack.RecordMutant("RES-11", "the same, on the host, to a process of the same user", "the agent's own user, and the sandbox", seen)
}

// flood is a program that opens connections, sends an incomplete request on each, and keeps them
// open until the file /workspace/over exists.
const flood = `
import os, resource, socket, ssl, threading, time
conns, refused = [], 0
deadline = time.time() + 15
while len(conns) + refused < %d and time.time() < deadline:
    try:
        s = socket.create_connection(("busy.test", 80), timeout=3)
        s.sendall(b"GET / HTTP/1.1\r\nHost: busy.test\r\nX-Long: " + b"a" * %d)
        conns.append(s)
    except OSError: refused += 1
print(len(conns), "open", refused, "refused")
end = time.time() + %d
while time.time() < end and not os.path.exists("/workspace/over"): time.sleep(0.1)`

// TestAttackProxyFlood verifies that the server's connections and memory for a sandbox are
// bounded if the sandbox opens as many connections as possible with incomplete requests, and that
// the server still serves other sandboxes.
//
//suite:part hostile
func TestAttackProxyFlood(t *testing.T) {
	if !runInLab(t) {
		return
	}
	run(t, "ip", "link", "set", "lo", "up")
	run(t, "ip", "addr", "add", good+"/32", "dev", "lo")
	var open, maxOpen atomic.Int64
	ln, err := net.Listen("tcp", good+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			maxOpen.Store(max(maxOpen.Load(), open.Add(1)))
			go func() {
				defer func() { c.Close(); open.Add(-1) }()
				b := make([]byte, 4096)
				if n, _ := c.Read(b); strings.Contains(string(b[:n]), "\r\n\r\n") {
					fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ngood")
					return
				}
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	names := fixedNames{"busy.test": netip.MustParseAddr(good)}
	e, ctx := engineWith(t, engine.Options{Egress: engine.EgressOptions{Resolver: names}})
	const attempted, bound = 1500, 512 // attempted connections, and the bound per sandbox
	for _, inspected := range []bool{false, true} {
		rule := brig.EgressRule{Host: "busy.test"}
		if inspected {
			rule.Methods = []string{"GET"}
		}
		rules := brig.Egress{Rules: []brig.EgressRule{rule, {CIDR: good}}}
		spec := brig.Spec{Egress: rules, Limits: brig.Limits{Memory: brig.GiB, OpenFiles: 4096}}
		bad, err := e.Create(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		neighbour, err := e.Create(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		maxOpen.Store(0)
		peak, stop := watchHeap()
		initialHeap := peak.Load()
		done := make(chan string, 1)
		go func() {
			r, err := e.Exec(ctx, bad.Spec.Name, brig.Command{Argv: []string{"python3", "-c", fmt.Sprintf(flood, attempted, 30000, 120)}, Timeout: 3 * time.Minute}, brig.IO{})
			if err != nil {
				done <- err.Error()
				return
			}
			done <- string(r.Stdout.Head) + string(r.Stderr.Head)
		}()
		served, slow := 0, time.Duration(0)
		printed := ""
		for printed == "" {
			start := time.Now()
			r, err := e.Exec(ctx, neighbour.Spec.Name, brig.Command{Argv: []string{"python3", "-c", "import urllib.request as u; print(u.urlopen('http://busy.test/', timeout=10).read())"}}, brig.IO{})
			if err != nil || !strings.Contains(string(r.Stdout.Head), "good") {
				t.Errorf("the neighbour: %+v, %v: %s", r, err, r.Stderr.Head)
			}
			slow, served = max(slow, time.Since(start)), served+1
			if served == 3 { // on a busy host, the other sandbox may be slow and the flood short
				if _, err := e.Files(bad.Spec.Name).Write(ctx, brig.Path{Name: "/workspace/over"}, brig.FileWrite{}, strings.NewReader("")); err != nil {
					t.Error(err)
				}
			}
			select {
			case printed = <-done:
			case <-time.After(200 * time.Millisecond):
			}
		}
		stop()
		grown := peak.Load() - initialHeap
		escaped := maxOpen.Load() > bound+10 || grown > 256*brig.MiB || served < 3 || slow > 2*promptTimeout || !strings.Contains(printed, "open")
		if escaped {
			t.Errorf("looked at %t: up to %d connections, %d MiB, the neighbour was served %d times, in up to %v; it said %s", inspected, maxOpen.Load(), grown>>20, served, slow, printed)
		}
		t.Logf("looked at %t: up to %d connections outside, %d MiB more, the neighbour was served %d times, in up to %v; it said %s", inspected, maxOpen.Load(), grown>>20, served, slow, printed)
		attack.RecordCase("NET-16", fmt.Sprintf("%d connections that say half, looked at: %t", attempted, inspected), escaped)
		for _, b := range []*brig.Sandbox{bad, neighbour} {
			if err := e.Remove(ctx, b.Spec.Name); err != nil {
				t.Error(err)
			}
		}
	}
	// The control: without the proxy, every attempted connection reaches the host.
	maxOpen.Store(0)
	var conns []net.Conn
	for range bound + 100 {
		c, err := net.Dial("tcp", good+":80")
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for end := time.Now().Add(promptTimeout); maxOpen.Load() <= bound+10 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	seen := maxOpen.Load() > bound+10
	for _, c := range conns {
		c.Close()
	}
	if !seen {
		t.Errorf("%d connections are seen", maxOpen.Load())
	}
	attack.RecordMutant("NET-16", "as many connections, from the host", "the bound for each sandbox", seen)
}
