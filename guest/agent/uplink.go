package agent

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// linkName is the name of a sandbox's network interface.
const linkName = "eth0"

// link is the sandbox's only external network interface, if there is one.
type link struct {
	device string // the path by which only the agent opens the device; tunFile if empty

	mu    sync.Mutex // guards the fields below
	end   func()     // ends the current interface
	ended <-chan struct{}
}

// serveUplink creates the sandbox's network interface, which replaces an existing
// one. It transfers the interface's packets until the host disconnects.
func (a *Agent) serveUplink(call wire.Uplink, c net.Conn, w *writer) {
	t, done, err := a.link.replace(a, call, c)
	if err != nil {
		w.fail(err)
		return
	}
	defer close(done)
	defer t.close()
	w.writeOK()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer c.Close()
		t.sendTo(c)
	})
	wg.Go(func() {
		defer t.interrupt()
		t.receiveFrom(c)
	})
	wg.Wait()
}

// replace ends the existing interface and creates a new one. The caller transfers the packets of
// the new interface, and closes done when the interface no longer exists.
func (l *link) replace(a *Agent, call wire.Uplink, c net.Conn) (t *tun, done chan struct{}, err error) {
	address, err := netip.ParsePrefix(call.Address)
	if err != nil || !address.Addr().Is4() {
		return nil, nil, newInvalidError("%q is no address of IPv4 with the length of its prefix", call.Address)
	}
	gateway, err := netip.ParseAddr(call.Gateway)
	if err != nil || !gateway.Is4() {
		return nil, nil, newInvalidError("%q is no address of IPv4", call.Gateway)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		l.end()
		select {
		case <-l.ended:
		case <-time.After(replaceTimeout): // a write to a disconnected host may block
		}
		l.end = nil
	}
	if err := a.configureNetwork(gateway, call.Authority); err != nil {
		return nil, nil, err
	}
	if t, err = openTun(l.device, linkName); err != nil {
		return nil, nil, err
	}
	if err := configure(linkName, address, gateway, call.MTU); err != nil {
		t.close()
		return nil, nil, newFailure("internal", "", "%v", err)
	}
	done = make(chan struct{})
	l.end, l.ended = func() {
		go c.Close() // Close may block on a pending write
		t.close()
	}, done
	return t, done, nil
}

// replaceTimeout is how long replace waits for the previous interface to end.
const replaceTimeout = time.Second

// pastDeadline is a deadline in the past.
var pastDeadline = time.Unix(1, 0)

// packetBatch is the size at which a batch is sent, in bytes.
const packetBatch = 256 << 10

// sendTo sends packets from the sandbox to the host.
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

// receiveFrom passes packets from the host to the sandbox's kernel.
func (t *tun) receiveFrom(c net.Conn) {
	packets, b := wire.NewPackets(c), make([]byte, wire.MaxPacket)
	for {
		n, err := packets.Read(b)
		if err != nil || t.write(b[:n]) != nil {
			return
		}
	}
}
