package gvisor

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// countedConn is a connection that updates the number of open connections.
type countedConn struct {
	net.Conn
	openConns *atomic.Int32
}

func (c countedConn) Close() error {
	c.openConns.Add(-1)
	return nil
}

// dialer returns a dial function that counts all connections and the open ones.
func dialer(made, openConns *atomic.Int32) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		made.Add(1)
		openConns.Add(1)
		return countedConn{nil, openConns}, nil
	}
}

// pause waits until preconnect has opened a connection.
func pause() { time.Sleep(preconnectDelay + time.Millisecond) }

func TestPreconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made, openConns atomic.Int32
		a := preconnect{dial: dialer(&made, &openConns)}
		after := func(step string, wantMade, wantOpen int32) {
			t.Helper()
			if made.Load() != wantMade || openConns.Load() != wantOpen {
				t.Errorf("%s: %d were made and %d are open, want %d and %d", step, made.Load(), openConns.Load(), wantMade, wantOpen)
			}
		}
		take := func() net.Conn {
			t.Helper()
			c, err := a.take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		first := take()
		after("the first call makes its own", 1, 1)
		second := take()
		after("and so does one that comes at once", 2, 2)
		pause()
		after("one is ready after a moment, and only one", 3, 3)
		third := take()
		after("which the next call takes", 3, 3)
		for _, c := range []net.Conn{first, second, third} {
			c.Close()
		}
		pause()
		after("when all is quiet", 4, 1)
		a.close()
		after("nothing is ready after the end", 4, 0)
		take().Close()
		pause()
		after("and nothing is made ahead any more", 5, 0)
	})
}

// TestPreconnectClosesConnectionAtEnd verifies that a connection that is being opened when the
// sandbox ends is closed.
func TestPreconnectClosesConnectionAtEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made, openConns atomic.Int32
		dial, slow := dialer(&made, &openConns), atomic.Bool{}
		var a preconnect
		a.dial = func(ctx context.Context) (net.Conn, error) {
			if slow.Load() {
				pause()
			}
			return dial(ctx)
		}
		c, err := a.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		slow.Store(true)
		pause() // the connection is being opened
		a.close()
		pause()
		pause()
		if made.Load() != 2 || openConns.Load() != 0 {
			t.Errorf("%d were made and %d are open, want 2 and 0", made.Load(), openConns.Load())
		}
	})
}

// TestFailedPreconnectDoesNotFailCall verifies that a failed preconnect does not fail any
// call.
func TestFailedPreconnectDoesNotFailCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("lost")
		a := preconnect{dial: func(context.Context) (net.Conn, error) { return nil, lost }}
		defer a.close()
		a.schedule()
		pause()
		if _, err := a.take(t.Context()); !errors.Is(err, lost) {
			t.Errorf("take: %v, want %v", err, lost)
		}
	})
}
