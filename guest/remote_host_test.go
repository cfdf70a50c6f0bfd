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

// newTestRemoteHost returns a RemoteHost whose supervisor answers every
// connection with the given function.
func newTestRemoteHost(t testing.TB, respond func(c net.Conn)) *RemoteHost {
	t.Helper()
	o := &RemoteHost{Label: "there", Open: func(context.Context) (io.ReadWriteCloser, error) {
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
						respond(c)
					}
				}()
			}
		}()
		return ours, nil
	}}
	t.Cleanup(func() { o.Close() })
	return o
}

func TestRemoteHostReportsResponseErrors(t *testing.T) {
	for what, c := range map[string]struct {
		respond func(c net.Conn)
		want    brig.Kind
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
		_, err := newTestRemoteHost(t, c.respond).States(t.Context())
		if brig.KindOf(err) != c.want || err != nil && len(err.Error()) > 2000 {
			t.Errorf("%s: %.300v", what, err)
		}
	}
}

// A supervisor's list of instances is limited in bytes. The control is a list
// that fits.
func TestRemoteHostLimitsStates(t *testing.T) {
	for size, want := range map[int]brig.Kind{100: "", 900 << 10: brig.ConnectionFailed} {
		var sent atomic.Int64
		o := newTestRemoteHost(t, func(c net.Conn) {
			for range 1000 {
				if wire.WriteJSON(c, wire.TypeState, wire.State{ID: strings.Repeat("x", size)}) != nil {
					return
				}
				sent.Add(int64(size))
			}
			_ = wire.Write(c, wire.TypeOK, nil)
		})
		if all, err := o.States(t.Context()); brig.KindOf(err) != want || err == nil && len(all) != 1000 || sent.Load() > 2*maxStates {
			t.Errorf("1000 machines of %d bytes each: %d of them after %d bytes: %v", size, len(all), sent.Load(), err)
		}
	}
}

// The server does not send data to a program that is not a supervisor.
func TestRemoteHostChecksGreeting(t *testing.T) {
	for _, greeting := range []string{"", "command not found\n", strings.Repeat("x", 1<<20)} {
		o := &RemoteHost{Label: "there", Open: func(context.Context) (io.ReadWriteCloser, error) {
			return struct {
				io.Reader
				io.WriteCloser
			}{strings.NewReader(greeting), nopCloser{io.Discard}}, nil
		}}
		if _, err := o.States(t.Context()); brig.KindOf(err) != brig.ConnectionFailed {
			t.Errorf("%.20q: %v", greeting, err)
		}
	}
	refused := errors.New("refused")
	o := &RemoteHost{Open: func(context.Context) (io.ReadWriteCloser, error) { return nil, refused }}
	if _, err := o.States(t.Context()); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
}

// A command that was not started does not end the instance, because the remote
// host may be unreachable only for a moment.
func TestUnreachableHostKeepsInstance(t *testing.T) {
	var stopped atomic.Bool
	remote := newTestRemoteHost(t, func(c net.Conn) {
		// Only the request to stop the instance could arrive here.
		stopped.Store(true)
		_ = wire.Write(c, wire.TypeOK, nil)
	})
	var up atomic.Bool
	o := &RemoteHost{Label: "there", Open: func(ctx context.Context) (io.ReadWriteCloser, error) {
		if up.CompareAndSwap(false, true) {
			return nil, brig.Errorf(brig.ConnectionFailed, "there cannot be connected to")
		}
		return remote.Open(ctx)
	}}
	t.Cleanup(func() { o.Close() })
	m := o.newInstance(t.Context(), InstanceOptions{ID: "x"})
	if _, err := m.Exec(t.Context(), "e", brig.Command{Argv: []string{"true"}}, brig.IO{}); brig.KindOf(err) != brig.ConnectionFailed {
		t.Errorf("%v", err)
	}
	if stopped.Load() {
		t.Error("the machine was ended for it")
	}
}

// A reattached instance has the lease that its supervisor reports. A brief loss of the connection
// does not shorten the lease.
func TestAttachKeepsLease(t *testing.T) {
	remote := newTestRemoteHost(t, func(c net.Conn) {
		_ = wire.WriteJSON(c, wire.TypeState, wire.State{ID: "x", LeaseMS: time.Hour.Milliseconds()})
		_, _ = io.Copy(io.Discard, c)
	})
	var down atomic.Bool
	o := &RemoteHost{Label: "there", Open: func(ctx context.Context) (io.ReadWriteCloser, error) {
		if down.Load() {
			return nil, errors.New("it is down")
		}
		return remote.Open(ctx)
	}}
	t.Cleanup(func() { o.Close() })
	as := InstanceOptions{ID: "x", Dir: t.TempDir()}
	if err := o.newInstance(t.Context(), as).save(); err != nil {
		t.Fatal(err)
	}
	m, err := o.Attach(t.Context(), as, time.Now().Add(-time.Hour))
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

// An instance that its supervisor no longer has is recorded as ended, although its exit is unknown.
func TestDestroyedInstanceIsRecordedAsEnded(t *testing.T) {
	o := newTestRemoteHost(t, func(c net.Conn) { _ = wire.Write(c, wire.TypeOK, nil) })
	m := o.newInstance(t.Context(), InstanceOptions{ID: "x", Dir: t.TempDir()})
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

// FuzzSupervisorFrame checks that the server validates the frames of a
// supervisor.
func FuzzSupervisorFrame(f *testing.F) {
	f.Add(byte(wire.TypeState), []byte(`{"ID":"x","Ended":{"Code":700,"Reason":"odd","AtMS":-9223372036854775808}}`))
	f.Add(byte(wire.TypeError), []byte(`{"Kind":"not_found","Message":"`+strings.Repeat("\xff", 300)+`"}`))
	f.Fuzz(func(t *testing.T, kind byte, payload []byte) {
		frame := wire.Frame{Type: wire.Type(kind), Payload: bytes.Clone(payload)}
		if err := decodeFrameError(frame); err != nil && len(err.Error()) > 2000 {
			t.Errorf("it says %d bytes", len(err.Error()))
		}
		s, err := decodeState(frame)
		if err != nil || s.Ended == nil {
			return
		}
		m := (&RemoteHost{}).newInstance(t.Context(), InstanceOptions{ID: "x"})
		m.recordEnd(*s.Ended)
		if e := m.Exit(); e.Code < 0 || e.Code > 255 || e.Reason == "" || e.OOMKilled {
			t.Errorf("it ended with %+v", e)
		}
	})
}
