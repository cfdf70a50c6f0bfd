package e2e

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
)

// TestBandwidthLimitIsAccurate verifies that a sandbox's bandwidth, measured at a server, is within
// ten percent of its limit, in each direction and in both directions at the same time.
//
//suite:part egress full alone
func TestBandwidthLimitIsAccurate(t *testing.T) {
	needRoot(t)
	var up, down atomic.Int64 // bytes that the server has received and sent
	ln, err := net.Listen("tcp", "127.0.0.1:0")
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
			_ = c.(*net.TCPConn).SetWriteBuffer(128 << 10) // limits the number of bytes in flight
			go func() { defer c.Close(); _, _ = io.Copy(&passthroughWriter{n: &down, w: c}, endless{}) }()
			go func() { _, _ = io.Copy(&passthroughWriter{n: &up, w: io.Discard}, c) }()
		}
	}()
	e, ctx := engineWith(t, engine.Options{Egress: engine.EgressOptions{
		Resolver: fixedNames{"wide.test": netip.MustParseAddr("93.184.215.14")},
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, ln.Addr().String())
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(128 << 10)
			}
			return c, err
		},
	}})
	const bound = 1_000_000
	for _, limit := range []int64{bound, 0} {
		box, err := e.Create(ctx, brig.Spec{Egress: brig.Egress{Bandwidth: limit, Rules: []brig.EgressRule{{Host: "wide.test"}}}, Limits: brig.Limits{Memory: brig.GiB}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ name, threads string }{{"out", "send"}, {"in", "recv"}, {"both ways", "send, recv"}} {
			code := fmt.Sprintf(`
import socket, threading, time
end = time.time() + 8
def send(s):
    while time.time() < end: s.sendall(b"x" * 16384)
def recv(s):
    while time.time() < end: s.recv(65536)
def go(f):
    s = socket.create_connection(("wide.test", 8080)); s.settimeout(8)
    try: f(s)
    except OSError: pass
    s.close()
for t in [threading.Thread(target=go, args=(f,), daemon=True) for f in (%s,)]: t.start()
time.sleep(8)`, c.threads)
			done := make(chan error, 1)
			go func() {
				_, err := e.Exec(ctx, box.Spec.Name, brig.Command{Argv: []string{"python3", "-c", code}, Timeout: 30 * time.Second}, brig.IO{})
				done <- err
			}()
			time.Sleep(2 * time.Second) // wait until the initial burst is over
			begin, wasUp, wasDown := time.Now(), up.Load(), down.Load()
			time.Sleep(5 * time.Second)
			took := time.Since(begin).Seconds()
			out, in := float64(up.Load()-wasUp)/took, float64(down.Load()-wasDown)/took
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if limit == 0 {
				fastest := max(out, in)
				t.Logf("without a bound, %s: %.2f MB/s", c.name, fastest/1e6)
				attack.RecordMutant("NET-16", "bandwidth "+c.name, "the bound", fastest > 1.5*bound)
				if fastest <= 1.5*bound {
					t.Errorf("without a bound, %s: %.2f MB/s shows nothing", c.name, fastest/1e6)
				}
				continue
			}
			for variant, rate := range map[string]float64{"out": out, "in": in} {
				if c.name != "both ways" && c.name != variant {
					continue
				}
				off := deviation(rate, bound)
				t.Logf("%s, %s: %.3f MB/s, %+.1f %%", c.name, variant, rate/1e6, off)
				if math.Abs(off) > 10 {
					t.Errorf("%s, %s: %+.1f %%", c.name, variant, off)
				}
				attack.RecordCase("NET-16", "more bandwidth than is allowed, "+c.name+", "+variant, off > 10)
			}
		}
		if err := e.Remove(ctx, box.Spec.Name); err != nil {
			t.Error(err)
		}
	}
}

// passthroughWriter is a writer that writes to w and counts the bytes.
type passthroughWriter struct {
	n *atomic.Int64
	w io.Writer
}

// Write implements io.Writer.
func (t *passthroughWriter) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	t.n.Add(int64(n))
	return n, err
}

// endless is a reader of endless data.
type endless struct{}

// Read implements io.Reader.
func (endless) Read(p []byte) (int, error) {
	p = p[:min(len(p), 32<<10)]
	clear(p)
	return len(p), nil
}
