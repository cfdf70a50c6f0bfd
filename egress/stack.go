package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/brig-run/brig"
)

const (
	// maxHandshakes limits how many connections of one sandbox are being
	// established at the same time.
	maxHandshakes = 256
	nic           = 1
)

// newStack creates the network stack that terminates a sandbox's connections,
// regardless of their destination.
func newStack(end *endpoint, accept func(*tcp.ForwarderRequest)) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	var errs []error
	check := func(what string, err tcpip.Error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s", what, err))
		}
	}
	sack := tcpip.TCPSACKEnabled(true)
	check("selective acknowledgements", s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack))
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: wideBuffer, Max: wideBuffer}
	check("receive buffers", s.SetTransportProtocolOption(tcp.ProtocolNumber, &receive))
	// The data in flight of one connection fits into the buffers of an uplink,
	// so a single connection causes no packet loss.
	send := tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: wideBuffer, Max: wideBuffer}
	check("send buffers", s.SetTransportProtocolOption(tcp.ProtocolNumber, &send))
	// An uplink delivers packets in order: no packet of an old connection
	// arrives after the SYN of a new one. Without a listener, netstack drops
	// that SYN while the old connection is in TIME-WAIT, which lasts a minute
	// if the server closed it first.
	wait := tcpip.TCPTimeWaitTimeoutOption(0)
	check("time to wait", s.SetTransportProtocolOption(tcp.ProtocolNumber, &wait))
	check("interface", s.CreateNIC(nic, end))
	check("any address", s.SetPromiscuousMode(nic, true))
	check("any address", s.SetSpoofing(nic, true))
	check("address", s.AddProtocolAddress(nic, tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddrFrom4(brig.UplinkGateway.As4()).WithPrefix(),
	}, stack.AddressProperties{}))
	if len(errs) > 0 {
		s.Destroy()
		return nil, errors.Join(errs...)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	forwarder := tcp.NewForwarder(s, 0, maxHandshakes, accept)
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, forwarder.HandlePacket)
	return s, nil
}

// accept checks a connection that the sandbox requests.
func (s *Session) accept(r *tcp.ForwarderRequest) {
	id := r.ID()
	to := netip.AddrPortFrom(addrOf(id.LocalAddress), id.LocalPort)
	replied := false
	defer func() {
		if !replied {
			r.Complete(true)
		}
	}()
	s.connect(to, func(n int64) (net.Conn, error) {
		replied = true
		var queue waiter.Queue
		ep, err := r.CreateEndpoint(&queue)
		r.Complete(err != nil)
		if err != nil {
			return nil, errors.New(err.String())
		}
		ep.SocketOptions().SetReceiveBufferSize(n, true) // they do not grow automatically
		ep.SocketOptions().SetSendBufferSize(n, true)
		return newLingering(&queue, ep), nil
	})
}
