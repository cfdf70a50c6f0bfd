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

// linkRoom is how many packets wait on a link in each direction.
const linkRoom = 256

// Link is a machine's own end of its uplink: what is sent here is received
// there, and the other way round.
type Link struct {
	// Authority is what the machine was given to trust.
	Authority []byte

	out, in chan []byte
	machine <-chan struct{} // closed when the machine has ended
	closed  chan struct{}
	close   func()
}

var errUnplugged = errors.New("the link is gone")

// Link returns the machine's end of its uplink, nil where it has none.
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
	if in.link == nil || in.link.gone() {
		return nil
	}
	return in.link
}

// Uplink implements brig.Instance.
func (in *instance) Uplink(_ context.Context, authority []byte) (brig.Uplink, error) {
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
		out: make(chan []byte, linkRoom), in: make(chan []byte, linkRoom),
	}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	in.link = l
	return uplink{l}, nil
}

func (l *Link) gone() bool {
	select {
	case <-l.machine:
	case <-l.closed:
	default:
		return false
	}
	return true
}

// Send sends a packet as a program of the machine would.
func (l *Link) Send(p []byte) error { return l.put(l.out, p) }

// Receive waits for a packet that was sent to the machine.
func (l *Link) Receive(ctx context.Context) ([]byte, error) { return l.take(ctx.Done(), l.in) }

// put hands a packet over, or loses it.
func (l *Link) put(to chan<- []byte, p []byte) error {
	if l.gone() {
		return errUnplugged
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

// take waits for a packet until the link or somebody's patience ends.
func (l *Link) take(enough <-chan struct{}, from <-chan []byte) ([]byte, error) {
	if l.gone() {
		return nil, errUnplugged
	}
	select {
	case p := <-from:
		return p, nil
	case <-l.machine:
	case <-l.closed:
	case <-enough:
		return nil, context.Canceled
	}
	return nil, errUnplugged
}

// uplink is the host's end of a link.
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

// exchange is the command that sends a packet and writes the next that comes.
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
