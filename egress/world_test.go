package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/brig-run/brig"
)

// wire is one end of an uplink in memory.
type wire struct {
	in, out chan []byte
	end     chan struct{}
	once    *sync.Once
}

func newWire() (sandbox, host *wire) {
	a, b, end := make(chan []byte, 64), make(chan []byte, 64), make(chan struct{})
	once := &sync.Once{}
	return &wire{a, b, end, once}, &wire{b, a, end, once}
}

func (w *wire) Receive(p []byte) (int, error) {
	select {
	case b := <-w.in:
		return copy(p, b), nil
	case <-w.end:
		return 0, io.EOF
	}
}

func (w *wire) Send(p []byte) error {
	select {
	case w.out <- slices.Clone(p):
		return nil
	default:
	}
	// A stack does not receive while it sends. If both sides waited for each other forever, they
	// would deadlock, so a full link drops packets, like a real network.
	full := time.NewTimer(100 * time.Millisecond)
	defer full.Stop()
	select {
	case w.out <- slices.Clone(p):
		return nil
	case <-full.C:
		return nil
	case <-w.end:
		return io.ErrClosedPipe
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.end) })
	return nil
}

// world is a sandbox with a network stack, its session, and a simulated
// internet of addresses on which the test's servers listen.
type world struct {
	*Session
	t     *testing.T
	wire  *wire // the sandbox's end
	guest *stack.Stack
	wait  time.Duration // how long the sandbox waits for an answer

	mu            sync.Mutex
	events        []Event
	dialed        []string                // every address that was dialed
	resolvedNames []string                // every name that was resolved outside
	places        map[string]string       // address:port -> listener
	zone          map[string][]netip.Addr // addresses by name; if flip is set, one at a time in turn
	alternate     bool
	udp           chan []byte
}

func newWorld(t *testing.T, rules *brig.Egress, change ...func(*Options)) *world {
	t.Helper()
	sandbox, host := newWire()
	l := &world{t: t, wait: 20 * time.Second, wire: sandbox, places: map[string]string{}, zone: map[string][]netip.Addr{}}
	o := Options{
		Rules: *rules, Resolver: l, CheckOwnAddress: func(a netip.Addr) bool { return a == netip.MustParseAddr("203.0.113.99") },
		Dial: l.connectTo,
		Report: func(e Event) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.events = append(l.events, e)
		},
	}
	for _, f := range change {
		f(&o)
	}
	var err error
	if l.Session, err = Start(t.Context(), host, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Session.Close)
	l.guest = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	end := &endpoint{link: sandbox}
	if err := l.guest.CreateNIC(1, end); err != nil {
		t.Fatal(err)
	}
	if err := l.guest.AddProtocolAddress(1, tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(brig.UplinkNetwork.Addr().As4()), PrefixLen: 15},
	}, stack.AddressProperties{}); err != nil {
		t.Fatal(err)
	}
	l.guest.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}})
	t.Cleanup(l.guest.Destroy)
	l.udp = make(chan []byte, 16)
	go func() {
		p := make([]byte, brig.UplinkMTU)
		for {
			n, err := sandbox.Receive(p)
			if err != nil {
				return
			}
			if ip := header.IPv4(p[:n]); ip.TransportProtocol() == header.UDPProtocolNumber {
				l.udp <- slices.Clone(p[:n])
				continue
			}
			end.deliver(p[:n])
		}
	}()
	return l
}

// LookupNetIP implements Resolver.
func (l *world) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resolvedNames = append(l.resolvedNames, host)
	out := l.zone[host]
	if len(out) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if l.alternate {
		i := (len(l.resolvedNames) - 1) % len(out)
		return out[i : i+1], nil
	}
	return out, nil
}

// connectTo dials a host of the world, for the session.
func (l *world) connectTo(ctx context.Context, _, address string) (net.Conn, error) {
	l.mu.Lock()
	l.dialed = append(l.dialed, address)
	to, ok := l.places[address]
	l.mu.Unlock()
	if !ok {
		return nil, errors.New("connection refused")
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", to)
}

// serve makes f handle the connections to an address and port of the world.
func (l *world) serve(address string, f func(net.Conn)) {
	l.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); f(c) }()
		}
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.places[address] = ln.Addr().String()
}

func (l *world) name(name string, addrs ...string) {
	for _, a := range addrs {
		l.zone[name+"."] = append(l.zone[name+"."], netip.MustParseAddr(a))
	}
}

// dial connects from inside the sandbox.
func (l *world) dial(a netip.Addr, port int) (net.Conn, error) { return l.dialFrom(0, a, port) }

// dialFrom connects from inside the sandbox, from the given local port or, if that is 0, from any
// port.
func (l *world) dialFrom(localPort uint16, a netip.Addr, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.t.Context(), l.wait)
	defer cancel()
	from := tcpip.FullAddress{NIC: 1, Port: localPort}
	if localPort != 0 {
		from.Addr = tcpip.AddrFrom4(brig.UplinkNetwork.Addr().As4())
	}
	return gonet.DialTCPWithBind(ctx, l.guest, from, tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4(a.As4()), Port: uint16(port)}, ipv4.ProtocolNumber)
}

// lookup sends a DNS query from inside the sandbox over UDP.
func (l *world) lookup(name string, kind dnsmessage.Type) (dnsmessage.Message, bool) {
	l.t.Helper()
	n, err := dnsmessage.NewName(name)
	if err != nil {
		l.t.Fatal(err)
	}
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}}}
	b, err := q.Pack()
	if err != nil {
		l.t.Fatal(err)
	}
	return l.exchange(b)
}

// exchange sends one UDP message to the resolver and returns the response.
func (l *world) exchange(message []byte) (dnsmessage.Message, bool) {
	l.t.Helper()
	var out dnsmessage.Message
	_ = l.wire.Send(newDatagram(brig.UplinkGateway, dnsPort, message))
	select {
	case p := <-l.udp:
		ip := header.IPv4(p)
		udp := header.UDP(ip.Payload())
		if !ip.IsChecksumValid() || udp.SourcePort() != dnsPort || udp.DestinationPort() != 5353 || addrOf(ip.SourceAddress()) != brig.UplinkGateway {
			l.t.Fatalf("a strange answer: %x", p)
		}
		if err := out.Unpack(udp.Payload()); err != nil {
			l.t.Fatal(err)
		}
		return out, true
	case <-time.After(l.wait):
		return out, false
	}
}

// newDatagram returns a UDP packet from the sandbox.
func newDatagram(to netip.Addr, port int, payload []byte) []byte {
	ask := make([]byte, header.IPv4MinimumSize+header.UDPMinimumSize)
	ip := header.IPv4(ask)
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(ask)), TTL: 1, SrcAddr: tcpip.AddrFrom4(to.As4()), DstAddr: tcpip.AddrFrom4(brig.UplinkNetwork.Addr().As4())})
	udp := header.UDP(ask[header.IPv4MinimumSize:])
	udp.Encode(&header.UDPFields{SrcPort: uint16(port), DstPort: 5353, Length: header.UDPMinimumSize})
	return buildUDPReply(ip, udp, payload) // reply swaps the two addresses
}

// address resolves a name inside the sandbox, or reports false if it does not
// resolve.
func (l *world) address(name string) (netip.Addr, bool) {
	l.t.Helper()
	m, ok := l.lookup(name+".", dnsmessage.TypeA)
	if !ok {
		l.t.Fatal("no answer for", name)
	}
	for _, a := range m.Answers {
		if r, ok := a.Body.(*dnsmessage.AResource); ok {
			return netip.AddrFrom4(r.A), true
		}
	}
	return netip.Addr{}, false
}

// connectName resolves a name and connects to it, from inside the sandbox.
func (l *world) connectName(name string, port int) (net.Conn, error) {
	l.t.Helper()
	a, ok := l.address(name)
	if !ok {
		return nil, errors.New("no such host")
	}
	return l.dial(a, port)
}

// outsideTraffic returns the addresses that were dialed and the names that were resolved.
func (l *world) outsideTraffic() (dialed, queries []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.dialed), slices.Clone(l.resolvedNames)
}
