package guest

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Uplink implements brig.Instance.Uplink.
func (g *Guest) Uplink(ctx context.Context, authority []byte) (brig.Uplink, error) {
	conn, err := g.openStream(ctx, wire.Call{Op: wire.OpUplink, Uplink: &wire.Uplink{
		Address: brig.UplinkNetwork.String(), Gateway: brig.UplinkGateway.String(),
		MTU: brig.UplinkMTU, Authority: authority,
	}})
	if err != nil {
		return nil, err
	}
	return newUplink(conn), nil
}

// queued is the maximum amount of data, in bytes, that is queued until the sandbox reads it.
// Further packets are dropped, as on any network.
const queued = 4 << 20

// uplink is the host's end of a sandbox's network link. The packets that it
// reads are untrusted. It queues the packets to write, so that many small
// packets need few system calls and senders never wait for a sandbox that does
// not read.
type uplink struct {
	conn net.Conn
	in   *wire.Packets

	mu   sync.Mutex // guards the fields below
	more sync.Cond  // signalled when out is not empty or err is set
	out  []byte
	err  error // the reason why the link has ended
}

func newUplink(conn net.Conn) *uplink {
	u := &uplink{conn: conn, in: wire.NewPackets(conn)}
	u.more.L = &u.mu
	go u.write()
	return u
}

// Receive implements brig.Uplink.
func (u *uplink) Receive(p []byte) (int, error) {
	n, err := u.in.Read(p)
	if err != nil {
		return 0, u.end(fmt.Errorf("receive a packet: %w (%w)", ErrLost, err))
	}
	return n, nil
}

// Send implements brig.Uplink.
func (u *uplink) Send(p []byte) error {
	if len(p) == 0 || len(p) > brig.UplinkMTU {
		return fmt.Errorf("send %d bytes: %w", len(p), wire.ErrPacket)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		return u.err
	}
	if len(u.out)+wire.PacketHeader+len(p) <= queued {
		u.out = wire.AppendPacket(u.out, p)
		u.more.Signal()
	}
	return nil
}

// Close implements brig.Uplink.
func (u *uplink) Close() error {
	_ = u.end(fmt.Errorf("use of a closed uplink: %w", net.ErrClosed))
	return nil
}

// end ends the network link, and returns the reason that was passed to its first call.
func (u *uplink) end(cause error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		u.err = cause
		u.conn.Close()
		u.more.Signal()
	}
	return u.err
}

// smallBatch is the maximum capacity of the buffer that is kept between
// batches, in bytes.
const smallBatch = 256 << 10

// write repeatedly writes all queued packets with one call.
func (u *uplink) write() {
	var batch []byte
	for {
		u.mu.Lock()
		for len(u.out) == 0 && u.err == nil {
			u.more.Wait()
		}
		if u.err != nil {
			u.mu.Unlock()
			return
		}
		if cap(batch) > smallBatch {
			batch = nil
		}
		batch, u.out = u.out, batch[:0]
		u.mu.Unlock()
		if _, err := u.conn.Write(batch); err != nil {
			_ = u.end(fmt.Errorf("send packets: %w (%w)", ErrLost, err))
			return
		}
	}
}
