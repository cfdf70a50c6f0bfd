package egress

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// A few sandboxes with as many connections as they can open leave capacity for
// others. All sandboxes together do not exceed the limit.
func TestConnLimitIsShared(t *testing.T) {
	room := NewConnLimiter(100)
	inRoom := func(o *Options) { o.ConnLimiter = room }
	worlds := []*world{newWorld(t, allowHosts("203.0.113.0/24"), inRoom), newWorld(t, allowHosts("203.0.113.0/24"), inRoom)}
	var conns []net.Conn
	fill := func(w *world) (n int) {
		w.serve("203.0.113.5:80", echoServer)
		for range 110 {
			c, err := w.dial(netip.MustParseAddr("203.0.113.5"), 80)
			if err != nil {
				break
			}
			conns = append(conns, c)
			n++
		}
		return n
	}
	if a, b := fill(worlds[0]), fill(worlds[1]); a != guaranteedFlows || b != 100-guaranteedFlows {
		t.Errorf("the sandboxes have %d and %d connections, want %d and %d", a, b, guaranteedFlows, 100-guaranteedFlows)
	}
	worlds[1].mu.Lock()
	last := worlds[1].events[len(worlds[1].events)-1]
	worlds[1].mu.Unlock()
	if last.Allowed || last.Why != "too many connections of all sandboxes together" {
		t.Errorf("the last event is %+v", last)
	}
	if got := exchangeText(t, conns[0], "still here"); got != "still here" {
		t.Errorf("what has its place says %q", got)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	for end := time.Now().Add(time.Minute); room.open.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d places are not given back", room.open.Load())
		}
	}
}

// If a sandbox has many connections, their buffers are small but carry the same
// data, and all together stay within the sandbox's memory.
func TestManyConnectionsHaveSmallBuffers(t *testing.T) {
	w := newWorld(t, allowHosts("203.0.113.0/24"))
	w.serve("203.0.113.5:80", echoServer)
	const many = 300
	var last net.Conn
	for range many {
		c, err := w.dial(netip.MustParseAddr("203.0.113.5"), 80)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		last = c
	}
	long := strings.Repeat("some data\n", 50_000)
	if back := exchangeText(t, last, long); back != long {
		t.Errorf("%d of %d bytes came back", len(back), len(long))
	}
	kept := int64(0)
	got := map[int64]int{}
	for range 100 { // the buffers are set a moment after the connection is established
		kept, got = 0, map[int64]int{}
		for _, e := range w.stack.RegisteredEndpoints() {
			o := e.(*tcp.Endpoint).SocketOptions()
			kept += o.GetReceiveBufferSize() + o.GetSendBufferSize()
			got[o.GetReceiveBufferSize()]++
		}
		if kept <= DefaultMemory && got[wideBuffer] <= 4 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if kept > DefaultMemory || got[wideBuffer] == 0 || got[narrowBuffer] < many/2 {
		t.Errorf("%d bytes are kept; buffers by size are %v", kept, got)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if !e.Allowed {
			t.Errorf("%+v", e)
		}
	}
}
