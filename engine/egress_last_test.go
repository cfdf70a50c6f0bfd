package engine

import (
	"io"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
)

// floodLink is the link of a sandbox that sends one packet many times.
type floodLink struct {
	packet  []byte
	left    int
	drained chan struct{}
	closed  chan struct{}
}

func (l *floodLink) Receive(p []byte) (int, error) {
	if l.left == 0 {
		close(l.drained)
		<-l.closed
		return 0, io.EOF
	}
	l.left--
	return copy(p, l.packet), nil
}

func (l *floodLink) Send([]byte) error { return nil }

func (l *floodLink) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

// The events that a session could not report are counted before the reservation of the sandbox is
// released. Otherwise the tenant may be removed before, and a later tenant of the same name would
// inherit them.
func TestLastEgressEventsAreCounted(t *testing.T) {
	e, now := newNotesEngine(t)
	rec := &brig.Record{Sandbox: brig.Sandbox{ID: "b1", Tenant: "acme"}}
	packet := make([]byte, header.IPv4MinimumSize+header.ICMPv4MinimumSize)
	ip := header.IPv4(packet)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(packet)), TTL: 64, Protocol: uint8(header.ICMPv4ProtocolNumber),
		SrcAddr: tcpip.AddrFrom4([4]byte{198, 18, 0, 2}), DstAddr: tcpip.AddrFrom4([4]byte{203, 0, 113, 5}),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	const sent = 20_000
	link := &floodLink{packet: packet, left: sent, drained: make(chan struct{}), closed: make(chan struct{})}
	w := e.egressOf(rec.ID)
	session, err := egress.Start(t.Context(), link, egress.Options{CA: w.ca, Report: func(ev egress.Event) { e.noteEgress(rec, ev) }})
	if err != nil {
		t.Fatal(err)
	}
	w.session, w.rec = session, rec
	<-link.drained
	e.endEgress(rec.ID)
	whole, more := countLines(t, e.takeNotes(*now, true))
	if whole+more != sent {
		t.Errorf("%d events are logged and %d counted, want %d in all", whole, more, sent)
	}
	if n := session.TakeSuppressed(); n != 0 {
		t.Errorf("%d events remain in the session", n)
	}
}
