package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// endReasonOf runs a command and returns the reason why its sandbox must end.
// The agent's time limits are longer than any test waits.
func endReasonOf(t *testing.T, timeout, exit time.Duration, agent func(call wire.Call, c net.Conn)) (*brig.Result, error) {
	t.Helper()
	g := newTestGuest(t, agent)
	g.test.agent, g.test.tree, g.test.retry, g.test.exit = 40*time.Second, time.Minute, 30*time.Second, max(exit, 300*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	res, err := g.Exec(ctx, "x", brig.Command{Shell: "x", Timeout: timeout}, brig.IO{Stdout: io.Discard, Stderr: io.Discard})
	if ctx.Err() != nil {
		t.Fatal("the verdict does not come")
	}
	if !errors.Is(err, ErrLost) {
		return res, err
	}
	return res, g.EndReason(ctx, "x", res, err)
}

// A sandbox whose agent violates the protocol ends immediately. The controls are valid responses
// and a connection that closes.
func TestViolationsEndMachine(t *testing.T) {
	long := append([]byte{byte(wire.TypeStdout)}, 0xff, 0xff, 0xff, 0xff)
	for name, response := range map[string][]byte{
		"a frame that there is not":      frames(wire.Type(250), "{}"),
		"a frame of another call":        frames(wire.TypeEntry, fine),
		"an end of another call":         frames(wire.TypeOK, ""),
		"a length that cannot be":        long,
		"a length that cannot be, later": append(frames(wire.TypeStarted, "{}"), long...),
		"a start after the start":        frames(wire.TypeStarted, "{}", wire.TypeStarted, "{}"),
		"a result without a request":     frames(wire.TypeStarted, "{}", wire.TypeResult, "x"),
		"an exit that is no JSON":        frames(wire.TypeExit, "{"),
		"an exit with invalid numbers":   frames(wire.TypeExit, `{"Code":1e999}`),
		"an error that is no JSON":       frames(wire.TypeError, "{"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, reason := endReasonOf(t, 0, 0, func(call wire.Call, c net.Conn) {
				closed := watchClose(c)
				if call.Op == wire.OpExec {
					_, _ = c.Write(response)
				}
				<-closed // the agent answers no other call
			})
			if !errors.Is(reason, ErrViolation) || !errors.Is(reason, ErrLost) || errors.Is(reason, ErrAgentGone) {
				t.Errorf("the machine has to end: %v", reason)
			}
		})
	}
	for name, response := range map[string][]byte{
		"a connection that ends":          nil,
		"a connection that ends midframe": frames(wire.TypeStdout, "output")[:8],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, reason := endReasonOf(t, 0, 0, func(call wire.Call, c net.Conn) {
				watchClose(c)
				if call.Op == wire.OpKill {
					_ = wire.Write(c, wire.TypeOK, nil)
				} else if len(response) > 0 {
					_, _ = c.Write(response)
				}
			})
			if reason != nil {
				t.Errorf("the machine has to end: %v", reason)
			}
		})
	}
}

// Violations by an agent during a kill also end the sandbox.
func TestViolationsDuringKill(t *testing.T) {
	silent := func(c net.Conn) { <-watchClose(c) }
	flood := func(c net.Conn) {
		closed := watchClose(c)
		for full := make([]byte, wire.MaxPayload); ; {
			select {
			case <-closed:
				return
			default:
				if wire.Write(c, wire.TypeStdout, full) != nil {
					return
				}
			}
		}
	}
	hangUpOn := func(net.Conn) {}
	ok := func(c net.Conn) { _ = wire.Write(c, wire.TypeOK, nil) }
	garbage := func(c net.Conn) { _, _ = c.Write(bytes.Repeat([]byte{0xff}, 64)) }
	for name, how := range map[string]struct {
		exec, kill, ping func(net.Conn)
		want             error
		exit             time.Duration // time limit for the exit, 0 for the default
	}{
		"garbage for the kill":           {silent, garbage, silent, ErrViolation, 0},
		"garbage for the ping":           {silent, hangUpOn, garbage, ErrViolation, 0},
		"every connection closed":        {silent, hangUpOn, hangUpOn, errAgentCloses, 0},
		"output without an end":          {flood, ok, ok, ErrViolation, 10 * time.Second},
		"no exit":                        {silent, ok, ok, errNoExit, 0},
		"no exit, and a byte at a time":  {trickle, ok, ok, errNoExit, 0},
		"all closed, also the execution": {hangUpOn, hangUpOn, hangUpOn, errAgentCloses, 0},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			res, reason := endReasonOf(t, 10*time.Millisecond, how.exit, func(call wire.Call, c net.Conn) {
				switch call.Op {
				case wire.OpExec:
					how.exec(c)
				case wire.OpKill:
					how.kill(c)
				default:
					how.ping(c)
				}
			})
			runtime.ReadMemStats(&after)
			if !errors.Is(reason, how.want) {
				t.Errorf("the machine has to end: %v, want %v", reason, how.want)
			}
			if how.want != errAgentCloses && !res.TimedOut {
				t.Errorf("%+v", res)
			}
			if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64*brig.MiB {
				t.Errorf("the heap grew by %d bytes", grown)
			}
		})
	}
}

// trickle sends an endless frame, one byte at a time.
func trickle(c net.Conn) {
	closed := watchClose(c)
	for _, b := range []byte{byte(wire.TypeStdout), 0, 0x10, 0, 0} {
		_, _ = c.Write([]byte{b})
	}
	for {
		select {
		case <-closed:
			return
		case <-time.After(time.Millisecond):
			_, _ = c.Write([]byte{'x'})
		}
	}
}

// A kill that continues on a new connection is still the same kill: the agent
// has only its remaining time, but at least reconnectDelay.
func TestKillContinuesOnNewConnection(t *testing.T) {
	p := killTimeouts{agent: time.Hour, tree: 2 * time.Hour, broken: time.Minute}
	near := func(d, want time.Duration) bool { return d > want-30*time.Second && d < want+30*time.Second }
	for used, silence := range map[time.Duration]time.Duration{0: 0, 10 * time.Minute: 10 * time.Minute, 2 * time.Hour: time.Hour - time.Minute} {
		first := newTreeKill(t.Context())
		first.start(p)
		first.began.Add(-int64(used))
		first.alive.Add(-int64(used))
		u, ok := errors.AsType[pendingKillError](first.endWith(ErrLost))
		if !ok {
			t.Fatal("the error does not say that there was a fight")
		}
		f := newTreeKill(t.Context())
		f.began.Store(u.began)
		f.alive.Store(u.alive)
		f.start(p)
		f.stop()
		if !near(f.timeSinceAnswer(), silence) || !near(time.Since(time.Unix(0, f.began.Load())), used) {
			t.Errorf("after %v: silent for %v, want %v", used, f.timeSinceAnswer(), silence)
		}
	}
	f := newTreeKill(t.Context())
	if err := f.endWith(ErrLost); err != ErrLost {
		t.Errorf("without a fight: %v", err)
	}
}

// FuzzExecution responds with arbitrary data to an execution and to the calls that end it. There is
// always a result, and the data for callers is within its limits.
func FuzzExecution(f *testing.F) {
	for _, b := range [][]byte{
		nil, frames(wire.TypeStarted, "{}", wire.TypeStdout, "x", wire.TypeExit, `{"Code":3}`),
		frames(wire.TypeStarted, "{}", wire.TypeExit, `{"Code":4294967296,"Signal":-9,"TimedOut":true}`),
		frames(wire.TypeError, `{"Kind":"invalid","Field":"command","Message":"m"}`), {1, 0xff, 0xff, 0xff, 0xff},
		frames(wire.TypeStarted, "{}", wire.TypeStarted, "{}"), frames(wire.TypeExit, `[[[[`)[:7],
	} {
		f.Add(b, []byte(nil))
		f.Add(b, frames(wire.TypeOK, ""))
		f.Add([]byte(nil), b)
	}
	f.Fuzz(func(t *testing.T, exec, kill []byte) {
		g := &Guest{test: &killTimeouts{
			agent: 50 * time.Millisecond, tree: 200 * time.Millisecond, retry: 20 * time.Millisecond,
			rest: time.Millisecond, exit: 20 * time.Millisecond, closes: 10 * time.Millisecond,
		}}
		g.Dial = func(context.Context) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				f, err := wire.NewReader(theirs).Read()
				var call wire.Call
				if err != nil || json.Unmarshal(f.Payload, &call) != nil {
					return
				}
				closed := watchClose(theirs)
				if call.Op == wire.OpExec {
					_, _ = theirs.Write(exec)
					<-closed
					return
				}
				_, _ = theirs.Write(kill)
			}()
			return ours, nil
		}
		var out bytes.Buffer
		res, err := g.Exec(t.Context(), "x", brig.Command{Shell: "x", Timeout: 5 * time.Millisecond}, brig.IO{Stdout: &out, Stderr: &out})
		if errors.Is(err, ErrLost) {
			if reason := g.EndReason(t.Context(), "x", res, err); reason != nil && !errors.Is(reason, ErrLost) {
				t.Errorf("the machine has to end: %v", reason)
			}
		} else if err == nil && (!res.Done || res.ExitCode < 0 || res.ExitCode > 255) {
			t.Errorf("%+v without an error", res)
		}
		if out.Len() > len(exec) || res.OOMKilled {
			t.Errorf("%d bytes of output of %d, %+v", out.Len(), len(exec), res)
		}
	})
}
