package egress

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// A few sandboxes with as many connections as they can make leave room for
// others, and all together have no more than there is.
func TestRoomIsShared(t *testing.T) {
	room := NewRoom(100)
	inRoom := func(o *Options) { o.Room = room }
	worlds := []*world{newWorld(t, allow("203.0.113.0/24"), inRoom), newWorld(t, allow("203.0.113.0/24"), inRoom)}
	var conns []net.Conn
	fill := func(w *world) (n int) {
		w.serve("203.0.113.5:80", parrot)
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
	if a, b := fill(worlds[0]), fill(worlds[1]); a != fewFlows || b != 100-fewFlows {
		t.Errorf("the sandboxes have %d and %d connections, want %d and %d", a, b, fewFlows, 100-fewFlows)
	}
	worlds[1].mu.Lock()
	last := worlds[1].events[len(worlds[1].events)-1]
	worlds[1].mu.Unlock()
	if last.Allowed || last.Why != "too many connections of all sandboxes together" {
		t.Errorf("the last event is %+v", last)
	}
	if got := said(t, conns[0], "still here"); got != "still here" {
		t.Errorf("what has its place says %q", got)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	for end := time.Now().Add(5 * time.Second); room.open.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d places are not given back", room.open.Load())
		}
	}
}

// Many connections have narrow buffers, which carry as much as wide ones.
func TestManyConnectionsKeepLittle(t *testing.T) {
	w := newWorld(t, allow("203.0.113.0/24"))
	w.serve("203.0.113.5:80", parrot)
	var last net.Conn
	for range wideFlows + 10 {
		c, err := w.dial(netip.MustParseAddr("203.0.113.5"), 80)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		last = c
	}
	long := strings.Repeat("some data ", 50_000)
	if back := said(t, last, long); back != long {
		t.Errorf("%d of %d bytes came back", len(back), len(long))
	}
	var got map[int64]int
	for range 100 { // a connection has its buffers a moment after the sandbox has it
		got = map[int64]int{}
		for _, e := range w.stack.RegisteredEndpoints() {
			o := e.(*tcp.Endpoint).SocketOptions()
			got[max(o.GetReceiveBufferSize(), o.GetSendBufferSize())]++
		}
		if len(got) == 2 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if wide, narrow := got[wideBuffer], got[narrowBuffer]; len(got) != 2 || wide == 0 || wide > wideFlows || narrow < 9 {
		t.Errorf("buffers by size are %v, want at most %d of %d, the others of %d", got, wideFlows, wideBuffer, narrowBuffer)
	}
}
