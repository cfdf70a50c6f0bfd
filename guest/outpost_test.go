package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// outpostOf is an outpost whose keeper answers as it is told.
func outpostOf(t testing.TB, answer func(c net.Conn)) *Outpost {
	t.Helper()
	o := &Outpost{Where: "there", Open: func(context.Context) (io.ReadWriteCloser, error) {
		ours, theirs := net.Pipe()
		go func() {
			if _, err := io.WriteString(theirs, "a shell's greeting\n"+wire.Reached); err != nil {
				return
			}
			for m := wire.NewMux(theirs, true); ; {
				c, err := m.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					if _, err := wire.NewReader(c).Read(); err == nil {
						answer(c)
					}
				}()
			}
		}()
		return ours, nil
	}}
	t.Cleanup(func() { o.Close() })
	return o
}

func TestOutpostAnswers(t *testing.T) {
	for what, c := range map[string]struct {
		answer func(c net.Conn)
		want   brig.Kind
	}{
		"well":      {func(c net.Conn) { _ = wire.Write(c, wire.TypeOK, nil) }, ""},
		"none":      {func(net.Conn) {}, brig.ConnectionFailed},
		"not there": {func(c net.Conn) { _ = wire.WriteJSON(c, wire.TypeError, wire.Error{Kind: "not_found"}) }, brig.NotFound},
		"odd frame": {func(c net.Conn) { _ = wire.Write(c, 99, nil) }, brig.Internal},
		"odd error": {func(c net.Conn) { _ = wire.Write(c, wire.TypeError, []byte("{")) }, brig.Internal},
		"odd state": {func(c net.Conn) { _ = wire.Write(c, wire.TypeState, []byte("[]")) }, brig.Internal},
		"long words": {func(c net.Conn) {
			_ = wire.WriteJSON(c, wire.TypeError, wire.Error{Message: strings.Repeat("x", 1<<16)})
		}, brig.Internal},
	} {
		_, err := outpostOf(t, c.answer).States(t.Context())
		if brig.KindOf(err) != c.want || err != nil && len(err.Error()) > 2000 {
			t.Errorf("%s: %.300v", what, err)
		}
	}
}

// What is reached and is no keeper is not spoken to.
func TestOutpostGreeting(t *testing.T) {
	for _, said := range []string{"", "command not found\n", strings.Repeat("x", 1<<20)} {
		o := &Outpost{Where: "there", Open: func(context.Context) (io.ReadWriteCloser, error) {
			return struct {
				io.Reader
				io.WriteCloser
			}{strings.NewReader(said), nopCloser{io.Discard}}, nil
		}}
		if _, err := o.States(t.Context()); brig.KindOf(err) != brig.ConnectionFailed {
			t.Errorf("%.20q: %v", said, err)
		}
	}
	refused := errors.New("refused")
	o := &Outpost{Open: func(context.Context) (io.ReadWriteCloser, error) { return nil, refused }}
	if _, err := o.States(t.Context()); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
}

// A machine is not ended for a command that was never begun in it: that its host
// cannot be reached for a moment is no reason.
func TestExecUnasked(t *testing.T) {
	var stopped atomic.Bool
	keeper := outpostOf(t, func(c net.Conn) {
		// An order that gets here is to stop it.
		stopped.Store(true)
		_ = wire.Write(c, wire.TypeOK, nil)
	})
	var up atomic.Bool
	o := &Outpost{Where: "there", Open: func(ctx context.Context) (io.ReadWriteCloser, error) {
		if up.CompareAndSwap(false, true) {
			return nil, brig.Errorf(brig.ConnectionFailed, "there cannot be connected to")
		}
		return keeper.Open(ctx)
	}}
	t.Cleanup(func() { o.Close() })
	m := o.kept(t.Context(), MachineOptions{ID: "x"})
	if _, err := m.Exec(t.Context(), "e", brig.Command{Argv: []string{"true"}}, brig.IO{}); brig.KindOf(err) != brig.ConnectionFailed {
		t.Errorf("%v", err)
	}
	if stopped.Load() {
		t.Error("the machine was ended for it")
	}
}

// A machine that was found again has the lease that its keeper knows of, and is
// not given up before that for a moment in which it cannot be reached.
func TestFoundLease(t *testing.T) {
	keeper := outpostOf(t, func(c net.Conn) {
		_ = wire.WriteJSON(c, wire.TypeState, wire.State{ID: "x", LeaseMS: time.Hour.Milliseconds()})
		_, _ = io.Copy(io.Discard, c)
	})
	var down atomic.Bool
	o := &Outpost{Where: "there", Open: func(ctx context.Context) (io.ReadWriteCloser, error) {
		if down.Load() {
			return nil, errors.New("it is down")
		}
		return keeper.Open(ctx)
	}}
	t.Cleanup(func() { o.Close() })
	as := MachineOptions{ID: "x", Dir: t.TempDir()}
	if err := o.kept(t.Context(), as).remember(); err != nil {
		t.Fatal(err)
	}
	m, err := o.Find(t.Context(), as, time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	down.Store(true)
	o.mu.Lock()
	o.mux.Close()
	o.mu.Unlock()
	select {
	case <-m.Done():
		t.Errorf("it was given up: %+v", m.Exit())
	case <-time.After(300 * time.Millisecond):
	}
}

// What a keeper says is gone has ended, although nobody can be told how.
func TestDestroyUntold(t *testing.T) {
	o := outpostOf(t, func(c net.Conn) { _ = wire.Write(c, wire.TypeOK, nil) })
	m := o.kept(t.Context(), MachineOptions{ID: "x", Dir: t.TempDir()})
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if e := m.Exit(); e == nil || e.Reason != brig.Killed {
		t.Errorf("it ended with %+v", e)
	}
}

type nopCloser struct{ io.Writer }

// Close implements io.Closer.
func (nopCloser) Close() error { return nil }

// FuzzKeeperFrame: a keeper is as much a stranger as an agent.
func FuzzKeeperFrame(f *testing.F) {
	f.Add(byte(wire.TypeState), []byte(`{"ID":"x","Ended":{"Code":700,"Reason":"odd","AtMS":-9223372036854775808}}`))
	f.Add(byte(wire.TypeError), []byte(`{"Kind":"not_found","Message":"`+strings.Repeat("\xff", 300)+`"}`))
	f.Fuzz(func(t *testing.T, kind byte, payload []byte) {
		frame := wire.Frame{Type: wire.Type(kind), Payload: bytes.Clone(payload)}
		if err := verdict(frame); err != nil && len(err.Error()) > 2000 {
			t.Errorf("it says %d bytes", len(err.Error()))
		}
		s, err := state(frame)
		if err != nil || s.Ended == nil {
			return
		}
		m := (&Outpost{}).kept(t.Context(), MachineOptions{ID: "x"})
		m.conclude(*s.Ended)
		if e := m.Exit(); e.Code < 0 || e.Code > 255 || e.Reason == "" || e.OOMKilled {
			t.Errorf("it ended with %+v", e)
		}
	})
}
