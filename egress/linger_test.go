package egress

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// pendingConns counts the connections that a network stack has not released.
func pendingConns(s *stack.Stack) (n int) {
	seen := map[stack.TransportEndpoint]bool{}
	for _, e := range append(s.RegisteredEndpoints(), s.CleanupEndpoints()...) {
		if e, ok := e.(*tcp.Endpoint); ok && !seen[e] && tcp.EndpointState(e.State()) != tcp.StateClose {
			seen[e] = true
			n++
		}
	}
	return n
}

// flowCount returns the number of flows of a session.
func flowCount(l *world) int {
	l.Session.mu.Lock()
	defer l.Session.mu.Unlock()
	return len(l.flows)
}

// A sandbox does not read a host's response, and sends no more data. Both directions have then
// ended, but the response is still in the network stack. The connection is counted and charged
// until the sandbox has read the response, or for lingerTimeout. The control releases the
// connection immediately.
func TestUnreadResponsesAreCharged(t *testing.T) {
	const answer = 900 << 10
	unread := func(t *testing.T, tries int, patience time.Duration) func() (kept, flows int, charged int64) {
		l := newWorld(t, allowHosts("api.test"))
		l.lingerTime = patience
		l.name("api.test", "203.0.113.5")
		l.serve("203.0.113.5:5432", func(c net.Conn) { _, _ = c.Write(make([]byte, answer)) })
		narrow := tcpip.TCPReceiveBufferSizeRangeOption{Min: 1, Default: 4 << 10, Max: 4 << 10}
		fixed := tcpip.TCPModerateReceiveBufferOption(false)
		if l.guest.SetTransportProtocolOption(tcp.ProtocolNumber, &narrow) != nil || l.guest.SetTransportProtocolOption(tcp.ProtocolNumber, &fixed) != nil {
			t.Fatal("the sandbox has buffers of another size")
		}
		for range tries {
			c, err := l.connectName("api.test", 5432)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			_ = closeWrite(c)
			time.Sleep(50 * time.Millisecond) // the response arrives
			// With many concurrent connections, each buffer is smaller than the
			// response.
			for end := time.Now().Add(time.Minute); patience == 0 && flowCount(l) > 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}
		return func() (int, int, int64) {
			return pendingConns(l.stack), flowCount(l), l.budget.inUse()
		}
	}
	for _, c := range []struct {
		name        string
		tries       int
		patience    time.Duration
		kept, flows int
	}{{"charged", 40, lingerTimeout, 40, 40}, {"dropped", 1, time.Second, 0, 0}, {"control", 40, 0, 40, 0}} {
		t.Run(c.name, func(t *testing.T) {
			counted := unread(t, c.tries, c.patience)
			for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
				kept, flows, charged := counted()
				if kept == c.kept && flows == c.flows && (flows > 0) == (charged > 4*answer) && charged <= DefaultMemory {
					t.Logf("%d connections are kept, %d counted, %d KiB charged", kept, flows, charged>>10)
					return
				}
				if time.Now().After(end) {
					t.Fatalf("%d connections are kept, %d counted, %d KiB charged", kept, flows, charged>>10)
				}
			}
		})
	}
}

// Close waits until no connection carries any more bytes, so that Usage is final.
func TestCloseWaitsForConnections(t *testing.T) {
	dialing := make(chan struct{})
	var dialed atomic.Bool
	l := newWorld(t, allowHosts("api.test"), func(o *Options) {
		o.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			close(dialing)
			<-ctx.Done()
			time.Sleep(300 * time.Millisecond)
			dialed.Store(true)
			return nil, ctx.Err()
		}
	})
	l.name("api.test", "203.0.113.5")
	go func() { _, _ = l.connectName("api.test", 5432) }()
	<-dialing
	if l.Close(); !dialed.Load() {
		t.Error("a connection was still being made after Close")
	}
}

// Close counts the bytes of unfinished writes to the sandbox.
func TestUsageIsFinalAfterClose(t *testing.T) {
	l := newWorld(t, allowHosts("api.test"))
	l.name("api.test", "203.0.113.5")
	l.serve("203.0.113.5:5432", func(c net.Conn) {
		for b := make([]byte, 999); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	for range 40 { // the sandbox reads none of them
		c, err := l.connectName("api.test", 5432)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	_, before := l.Usage()
	for last := int64(-1); before != last; _, before = l.Usage() {
		last = before
		time.Sleep(500 * time.Millisecond)
	}
	l.Close()
	_, after := l.Usage()
	time.Sleep(200 * time.Millisecond)
	if _, now := l.Usage(); after == before || now != after {
		t.Errorf("the sandbox has received %d bytes, %d after Close and %d later", before, after, now)
	}
}
