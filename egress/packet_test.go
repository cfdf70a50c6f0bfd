package egress

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/brig-run/brig"
)

// newPacket returns an IPv4 packet from the sandbox.
func newPacket(from, to string, protocol tcpip.TransportProtocolNumber, payload []byte) []byte {
	p := make([]byte, header.IPv4MinimumSize+len(payload))
	ip := header.IPv4(p)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(p)), TTL: 64, Protocol: uint8(protocol),
		SrcAddr: tcpip.AddrFrom4(netip.MustParseAddr(from).As4()), DstAddr: tcpip.AddrFrom4(netip.MustParseAddr(to).As4()),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	copy(p[header.IPv4MinimumSize:], payload)
	return p
}

// newFragment returns an IP fragment of a TCP segment.
func newFragment(offset uint16, more bool) []byte {
	p := newPacket("198.18.0.2", "203.0.113.5", header.TCPProtocolNumber, make([]byte, 24))
	ip := header.IPv4(p)
	if more {
		ip.SetFlagsFragmentOffset(header.IPv4FlagMoreFragments, offset*8)
	} else {
		ip.SetFlagsFragmentOffset(0, offset*8)
	}
	ip.SetChecksum(0)
	ip.SetChecksum(^ip.CalculateChecksum())
	return p
}

// Packets that are neither TCP nor DNS queries are dropped, counted and
// reported.
func TestPacketsOtherThanTCPAndDNSAreDropped(t *testing.T) {
	l := newWorld(t, allowHosts("203.0.113.0/24", "8.8.8.8"))
	v6 := make([]byte, 60)
	v6[0] = 0x60
	dropped := [][]byte{
		newDatagram(netip.MustParseAddr("8.8.8.8"), 443, []byte("quic")),
		newDatagram(netip.MustParseAddr("203.0.113.5"), 123, []byte("ntp")),
		newDatagram(netip.MustParseAddr("224.0.0.251"), 5353, []byte("mdns")),
		newPacket("198.18.0.2", "203.0.113.5", header.ICMPv4ProtocolNumber, []byte{8, 0, 0, 0, 0, 0, 0, 0}),
		newPacket("198.18.0.2", "203.0.113.5", 132, make([]byte, 20)), // SCTP
		newPacket("198.18.0.2", "203.0.113.5", 47, make([]byte, 20)),  // GRE
		newPacket("203.0.113.1", "203.0.113.5", header.TCPProtocolNumber, make([]byte, 20)),
		newPacket("198.18.0.2", "203.0.113.5", header.UDPProtocolNumber, []byte{1, 2, 3}),
		newFragment(0, true), newFragment(1, false),
		v6, {}, {0x45}, make([]byte, 20),
	}
	for _, p := range dropped {
		if l.admit(p) {
			t.Errorf("%x goes on", p)
		}
	}
	if got := l.usage.dropped.Load(); got != int64(len(dropped)) {
		t.Errorf("%d were counted, want %d", got, len(dropped))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	drops := 0
	for _, e := range l.events {
		if e.Kind == Drop && !e.Allowed && e.Why != "" {
			drops++
		}
	}
	if drops != len(dropped) {
		t.Errorf("%d were told of", drops)
	}
	if len(l.dialed)+len(l.resolvedNames) > 0 {
		t.Errorf("dialed %q, asked %q", l.dialed, l.resolvedNames)
	}
}

// A DNS query is answered regardless of its destination, and never forwarded.
func TestDNSIsAnsweredLocally(t *testing.T) {
	l := newWorld(t, allowHosts("api.test", "8.8.8.8"))
	q := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("secret.exfil.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	l.admit(newDatagram(netip.MustParseAddr("8.8.8.8"), dnsPort, b))
	var m dnsmessage.Message
	p := header.IPv4(<-l.udp)
	if err := m.Unpack(header.UDP(p.Payload()).Payload()); err != nil || m.RCode != dnsmessage.RCodeNameError {
		t.Errorf("%+v, %v", m, err)
	}
	if dialed, queries := l.outsideTraffic(); len(dialed)+len(queries) > 0 {
		t.Errorf("dialed %q, asked %q", dialed, queries)
	}
}

// A sandbox that makes many requests does not flood the event log.
func TestEventsAreRateLimited(t *testing.T) {
	var reported, missed atomic.Int64
	l := newWorld(t, allowHosts(), func(o *Options) { o.Report = func(e Event) { reported.Add(1); missed.Add(e.Suppressed) } })
	p := newPacket("198.18.0.2", "203.0.113.5", header.ICMPv4ProtocolNumber, make([]byte, 8))
	const flood = 20_000
	for range flood {
		l.admit(p)
	}
	if n := reported.Load(); n > 2*eventBurst || n+missed.Load()+l.suppressed.Load() != flood {
		t.Errorf("%d of %d were told, %d counted", n, flood, l.suppressed.Load())
	}
}

// No packet of a sandbox causes a DNS query or a connection outside.
func FuzzPacket(f *testing.F) {
	q := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("api.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b, err := q.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(newDatagram(brig.UplinkGateway, dnsPort, b))
	f.Add(newPacket("198.18.0.2", "203.0.113.5", header.TCPProtocolNumber, make([]byte, 20)))
	f.Add(newPacket("198.18.0.2", "203.0.113.5", header.ICMPv4ProtocolNumber, make([]byte, 20)))
	s := &Session{link: discard{}, names: newNames(), Options: Options{Report: func(Event) {}}, events: newLimiter(1)}
	s.policy.Store(&policy{Egress: *allowHosts("api.test", "*.b.test")})
	f.Fuzz(func(t *testing.T, p []byte) {
		was := slices.Clone(p)
		s.admit(p)
		if !slices.Equal(was, p) {
			t.Error("the packet was changed")
		}
	})
}

type discard struct{}

func (discard) Receive([]byte) (int, error) { return 0, nil }
func (discard) Send([]byte) error           { return nil }
func (discard) Close() error                { return nil }
