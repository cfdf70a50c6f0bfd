package guest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// newTestGuest returns a Guest with short time limits, whose agent is the given
// function.
func newTestGuest(t *testing.T, agent func(call wire.Call, c net.Conn)) *Guest {
	t.Helper()
	var calls sync.WaitGroup
	calls.Add(1) // detached calls may begin at the end of the test
	t.Cleanup(func() {
		calls.Done()
		calls.Wait()
	})
	timeouts := &killTimeouts{agent: 300 * time.Millisecond, tree: 3 * time.Second, retry: 100 * time.Millisecond, rest: 5 * time.Millisecond, exit: 300 * time.Millisecond, closes: 100 * time.Millisecond}
	return &Guest{test: timeouts, Dial: func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		calls.Go(func() {
			defer theirs.Close()
			f, err := wire.NewReader(theirs).Read()
			var call wire.Call
			if err != nil || json.Unmarshal(f.Payload, &call) != nil {
				return // the host closed the connection
			}
			agent(call, theirs)
		})
		return ours, nil
	}}
}

// watchClose reads from the connection until the host closes it.
func watchClose(c net.Conn) <-chan struct{} {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r := wire.NewReader(c)
		for {
			if _, err := r.Read(); err != nil {
				return
			}
		}
	}()
	return closed
}

// Trees that end together are killed in a few calls, regardless of their
// number.
func TestKillsAreBatched(t *testing.T) {
	const n = 100
	var mu sync.Mutex
	calls, killed := 0, map[string]chan struct{}{}
	ended := func(id string) chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		if killed[id] == nil {
			killed[id] = make(chan struct{})
		}
		return killed[id]
	}
	g := newTestGuest(t, func(call wire.Call, c net.Conn) {
		switch call.Op {
		case wire.OpExec:
			watchClose(c)
			<-ended(call.Exec.ID)
			_ = wire.WriteJSON(c, wire.TypeExit, wire.Exit{Signal: 9})
		case wire.OpKill:
			mu.Lock()
			calls++
			mu.Unlock()
			for _, id := range append([]string{call.Kill.ID}, call.Kill.More...) {
				close(ended(id))
			}
			_ = wire.Write(c, wire.TypeOK, nil)
		}
	})
	g.test.retry = time.Minute
	ctx, disconnect := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if _, err := g.Exec(ctx, string(rune('a'+i)), brig.Command{Shell: "x"}, brig.IO{}); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	disconnect()
	all.Wait()
	if len(killed) != n || calls > n/4 {
		t.Errorf("%d trees were killed by %d calls", len(killed), calls)
	}
}

// A sandbox is ended or kept depending on how its agent behaves during a kill.
func TestKillEndsOnlyBrokenAgents(t *testing.T) {
	ok := func(c net.Conn) { _ = wire.Write(c, wire.TypeOK, nil) }
	exit := func(c net.Conn) { _ = wire.WriteJSON(c, wire.TypeExit, wire.Exit{Signal: 9}) }
	for name, how := range map[string]struct {
		agent func(op wire.Op, c net.Conn, since time.Duration, gone <-chan struct{})
		ends  error // nil if the sandbox continues
	}{
		"an agent that is slow, and answers": {agent: func(op wire.Op, c net.Conn, since time.Duration, gone <-chan struct{}) {
			switch {
			case op == wire.OpExec:
				time.Sleep(time.Second)
				exit(c)
			case op == wire.OpPing || since > 900*time.Millisecond:
				ok(c)
			default:
				<-gone
			}
		}},
		"an agent whose first kill does not work": {agent: func(op wire.Op, c net.Conn, since time.Duration, gone <-chan struct{}) {
			switch {
			case op == wire.OpExec:
				time.Sleep(600 * time.Millisecond)
				exit(c)
			case op == wire.OpKill && since < 500*time.Millisecond:
				_ = wire.WriteJSON(c, wire.TypeError, wire.Error{Kind: "internal", Message: "it is still there"})
			default:
				ok(c)
			}
		}},
		"a connection that breaks, of an agent that works": {agent: func(op wire.Op, c net.Conn, since time.Duration, gone <-chan struct{}) {
			if op == wire.OpExec {
				time.Sleep(100 * time.Millisecond)
			} else {
				ok(c)
			}
		}},
		"an agent that is silent": {ends: ErrAgentGone, agent: func(op wire.Op, c net.Conn, since time.Duration, gone <-chan struct{}) {
			<-gone
		}},
		"an agent that answers, and does no work": {ends: errKillFailed, agent: func(op wire.Op, c net.Conn, since time.Duration, gone <-chan struct{}) {
			if op == wire.OpPing {
				ok(c)
			} else {
				<-gone
			}
		}},
		"an agent that says that it killed, and no more": {ends: ErrAgentGone, agent: func(op wire.Op, c net.Conn, since time.Duration, gone <-chan struct{}) {
			if op == wire.OpExec {
				<-gone
			} else {
				ok(c)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			g := newTestGuest(t, func(call wire.Call, c net.Conn) {
				how.agent(call.Op, c, time.Since(begin), watchClose(c))
			})
			res, err := g.Exec(t.Context(), "x", brig.Command{Shell: "x", Timeout: 10 * time.Millisecond}, brig.IO{})
			var end error
			if errors.Is(err, ErrLost) {
				end = g.EndReason(t.Context(), "x", res, err)
			} else if err != nil {
				t.Fatal(err)
			}
			if !errors.Is(end, how.ends) || how.ends == nil && end != nil {
				t.Errorf("Exec says %v; the machine has to end: %v, want %v", err, end, how.ends)
			}
			if !res.TimedOut {
				t.Errorf("%+v", res)
			}
		})
	}
}

// slowWriter delays every write.
type slowWriter struct{ time.Duration }

func (w slowWriter) Write(p []byte) (int, error) {
	time.Sleep(w.Duration)
	return len(p), nil
}

// A caller that consumes the output slowly delays the exit report. The host
// must not mistake the delay for an unresponsive agent.
func TestSlowCallerDoesNotLoseAgent(t *testing.T) {
	killed := make(chan struct{})
	g := newTestGuest(t, func(call wire.Call, c net.Conn) {
		if call.Op != wire.OpExec {
			close(killed)
			_ = wire.Write(c, wire.TypeOK, nil)
			return
		}
		watchClose(c)
		for range 4 {
			_ = wire.Write(c, wire.TypeStdout, []byte("output"))
		}
		<-killed
		_ = wire.WriteJSON(c, wire.TypeExit, wire.Exit{Signal: 9})
	})
	res, err := g.Exec(t.Context(), "x", brig.Command{Shell: "x", Timeout: 10 * time.Millisecond}, brig.IO{Stdout: slowWriter{2 * g.test.agent}})
	if err != nil || !res.TimedOut || res.Stdout.Total != 24 {
		t.Errorf("%+v, %v", res, err)
	}
}

// Process.Kill repeats a request without a timely response, and returns an error if the agent does
// not end the process.
func TestProcessKillIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		works bool // the agent answers after a while
		want  error
	}{"an agent that is slow": {works: true}, "an agent that is silent": {want: ErrAgentGone}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			g := newTestGuest(t, func(call wire.Call, conn net.Conn) {
				closed := watchClose(conn)
				if !c.works || call.Op == wire.OpKill && time.Since(begin) < 250*time.Millisecond {
					<-closed
					return
				}
				_ = wire.Write(conn, wire.TypeOK, nil)
			})
			p := newProgram(g, "x", 7, nil)
			if err := p.Kill(t.Context()); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}
