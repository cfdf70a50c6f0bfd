package agent

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// linkName is the name of a sandbox's interface.
const linkName = "eth0"

// link is the one interface that a sandbox has to the outside, or none.
type link struct {
	device string // the name by which the agent alone opens it; none is tunFile

	mu    sync.Mutex // guards the fields below
	end   func()     // ends the one that there is
	ended <-chan struct{}
}

// uplink makes the sandbox's interface, in the stead of one that there is,
// and carries its packets until the host hangs up.
func (a *Agent) uplink(call wire.Uplink, c net.Conn, w *writer) {
	t, done, err := a.link.replace(a, call, c)
	if err != nil {
		w.fail(err)
		return
	}
	defer close(done)
	defer t.close()
	w.ok()
	var ways sync.WaitGroup
	ways.Go(func() {
		defer c.Close()
		t.sendTo(c)
	})
	ways.Go(func() {
		defer t.interrupt()
		t.receiveFrom(c)
	})
	ways.Wait()
}

// replace ends the interface that there is and makes another. Whoever carries
// its packets closes done when it is gone.
func (l *link) replace(a *Agent, call wire.Uplink, c net.Conn) (t *tun, done chan struct{}, err error) {
	address, err := netip.ParsePrefix(call.Address)
	if err != nil || !address.Addr().Is4() {
		return nil, nil, invalid("%q is no address of IPv4 with the length of its prefix", call.Address)
	}
	gateway, err := netip.ParseAddr(call.Gateway)
	if err != nil || !gateway.Is4() {
		return nil, nil, invalid("%q is no address of IPv4", call.Gateway)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		l.end()
		select {
		case <-l.ended:
		case <-time.After(stuckTime): // in what it writes to a host that has gone
		}
		l.end = nil
	}
	if err := a.acquaint(gateway, call.Authority); err != nil {
		return nil, nil, err
	}
	if t, err = openTun(l.device, linkName); err != nil {
		return nil, nil, err
	}
	if err := configure(linkName, address, gateway, call.MTU); err != nil {
		t.close()
		return nil, nil, failure("internal", "", "%v", err)
	}
	done = make(chan struct{})
	l.end, l.ended = func() {
		go c.Close() // which may have to wait for what is being written
		t.close()
	}, done
	return t, done, nil
}

// stuckTime is how long an interface that ends is waited for.
const stuckTime = time.Second

// past is a deadline that is over.
var past = time.Unix(1, 0)

// packetBatch is how much is sent at once, in bytes, beside the last packet.
const packetBatch = 256 << 10

// sendTo carries packets from the sandbox to the host.
func (t *tun) sendTo(c net.Conn) {
	b := make([]byte, 0, packetBatch+wire.PacketHeader+wire.MaxPacket)
	for {
		batch, err := t.read(b)
		if err != nil {
			return
		}
		if _, err := c.Write(batch); err != nil {
			return
		}
	}
}

// receiveFrom carries packets from the host to the sandbox.
func (t *tun) receiveFrom(c net.Conn) {
	packets, b := wire.NewPackets(c), make([]byte, wire.MaxPacket)
	for {
		n, err := packets.Read(b)
		if err != nil || t.write(b[:n]) != nil {
			return
		}
	}
}
