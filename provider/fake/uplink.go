package fake

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/brig-run/brig"
)

// linkQueue is the number of packets that a link queues in each direction.
const linkQueue = 256

// Link is the instance's end of its network link: it sends packets to the
// host's end, and receives packets from it.
type Link struct {
	// Authority is the certificate authority that the instance trusts.
	Authority []byte

	out, in chan []byte
	machine <-chan struct{} // closed when the instance has ended
	closed  chan struct{}
	close   func()
}

var errLinkClosed = errors.New("the link is gone")

// Link returns the instance's end of its network link, or nil if it has none.
func (p *Provider) Link(id brig.ID) *Link {
	p.mu.Lock()
	in := p.machines[id]
	p.mu.Unlock()
	if in == nil {
		return nil
	}
	return in.currentLink()
}

func (in *instance) currentLink() *Link {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.link == nil || in.link.isGone() {
		return nil
	}
	return in.link
}

// Uplink implements brig.Instance.
func (in *instance) Uplink(ctx context.Context, authority []byte) (brig.Uplink, error) {
	if in.p.OnUplink != nil {
		if err := in.p.OnUplink(ctx, in.id); err != nil {
			return nil, err
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.p.NoUplink {
		return nil, brig.Errorf(brig.Unimplemented, "a machine has no uplink")
	}
	if in.p.Ruled && len(in.spec.Egress.Rules) == 0 {
		return nil, brig.Errorf(brig.FailedPrecondition, "a machine was made without rules")
	}
	if in.exit != nil {
		return nil, fmt.Errorf("uplink of %s: it has ended", in.id)
	}
	if in.link != nil {
		in.link.close()
	}
	l := &Link{
		Authority: bytes.Clone(authority), machine: in.done, closed: make(chan struct{}),
		out: make(chan []byte, linkQueue), in: make(chan []byte, linkQueue),
	}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	in.link = l
	return uplink{l}, nil
}

// Pending returns the number of sent packets that the host's end has not received.
func (l *Link) Pending() int { return len(l.out) }

func (l *Link) isGone() bool {
	select {
	case <-l.machine:
	case <-l.closed:
	default:
		return false
	}
	return true
}

// Send sends a packet as a program of the instance would.
func (l *Link) Send(p []byte) error { return l.put(l.out, p) }

// Receive waits for a packet that was sent to the instance.
func (l *Link) Receive(ctx context.Context) ([]byte, error) { return l.take(ctx.Done(), l.in) }

// put queues a packet, or drops it if the queue is full.
func (l *Link) put(to chan<- []byte, p []byte) error {
	if l.isGone() {
		return errLinkClosed
	}
	if len(p) == 0 || len(p) > brig.UplinkMTU {
		return fmt.Errorf("a packet of %d bytes", len(p))
	}
	select {
	case to <- bytes.Clone(p):
	default:
	}
	return nil
}

// take waits for a packet, until the link ends or enough is closed.
func (l *Link) take(enough <-chan struct{}, from <-chan []byte) ([]byte, error) {
	if l.isGone() {
		return nil, errLinkClosed
	}
	select {
	case p := <-from:
		return p, nil
	case <-l.machine:
	case <-l.closed:
	case <-enough:
		return nil, context.Canceled
	}
	return nil, errLinkClosed
}

// uplink is the host's end of a network link.
type uplink struct{ l *Link }

// Receive implements brig.Uplink.
func (u uplink) Receive(p []byte) (int, error) {
	packet, err := u.l.take(nil, u.l.out)
	return copy(p, packet), err
}

// Send implements brig.Uplink.
func (u uplink) Send(p []byte) error { return u.l.put(u.l.in, p) }

// Close implements brig.Uplink.
func (u uplink) Close() error {
	u.l.close()
	return nil
}

// exchange is the command that sends a packet and writes the next one that
// arrives.
func (in *instance) exchange(ctx context.Context, packet string, out io.Writer) (int, error) {
	l := in.currentLink()
	if l == nil {
		_, err := fmt.Fprintln(out, "Network is unreachable")
		return 7, err
	}
	b, err := hex.DecodeString(packet)
	if err == nil {
		err = l.Send(b)
	}
	if err == nil {
		b, err = l.Receive(ctx)
	}
	if err == nil {
		_, err = fmt.Fprintln(out, hex.EncodeToString(b))
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}
