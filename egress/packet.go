package egress

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/brig-run/brig"
)

const dnsPort = 53

// admit checks a packet of the sandbox: TCP is passed to the stack, a DNS query
// is answered, and all other packets are dropped.
func (s *Session) admit(p []byte) (goesOn bool) {
	if len(p) < header.IPv4MinimumSize || header.IPVersion(p) != header.IPv4Version {
		s.drop("not IPv4", netip.Addr{}, 0)
		return false
	}
	ip := header.IPv4(p)
	if !ip.IsValid(len(p)) || addrOf(ip.SourceAddress()) != brig.UplinkNetwork.Addr() {
		s.drop("no address of the sandbox", netip.Addr{}, 0)
		return false
	}
	to := addrOf(ip.DestinationAddress())
	if ip.FragmentOffset() != 0 || ip.More() { // an uplink carries whole packets, and reassembly would take memory
		s.drop("a packet in pieces", to, 0)
		return false
	}
	switch ip.TransportProtocol() {
	case header.TCPProtocolNumber:
		return true
	case header.UDPProtocolNumber:
		s.handleDatagram(ip, to)
	case header.ICMPv4ProtocolNumber:
		s.drop("ICMP", to, 0)
	default:
		s.drop("neither TCP nor UDP", to, 0)
	}
	return false
}

// handleDatagram answers a DNS query, regardless of the address that it was sent to.
func (s *Session) handleDatagram(ip header.IPv4, to netip.Addr) {
	udp := header.UDP(ip.Payload())
	if len(udp) < header.UDPMinimumSize || int(udp.Length()) > len(udp) || udp.Length() < header.UDPMinimumSize {
		s.drop("UDP that is cut short", to, 0)
		return
	}
	if udp.DestinationPort() != dnsPort {
		s.drop("UDP", to, int(udp.DestinationPort()))
		return
	}
	if out := s.answerDNS(udp[header.UDPMinimumSize:udp.Length()]); out != nil {
		_ = s.link.Send(buildUDPReply(ip, udp, out)) // the client repeats the query if the answer is lost
	}
}

// buildUDPReply builds the packet that answers a query.
func buildUDPReply(ip header.IPv4, udp header.UDP, payload []byte) []byte {
	length := header.UDPMinimumSize + len(payload)
	p := make([]byte, header.IPv4MinimumSize+length)
	src, dst := ip.DestinationAddress(), ip.SourceAddress()
	out := header.IPv4(p)
	out.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(p)), TTL: 64, Protocol: uint8(header.UDPProtocolNumber), SrcAddr: src, DstAddr: dst,
	})
	out.SetChecksum(^out.CalculateChecksum())
	u := header.UDP(p[header.IPv4MinimumSize:])
	u.Encode(&header.UDPFields{SrcPort: udp.DestinationPort(), DstPort: udp.SourcePort(), Length: uint16(length)})
	copy(u[header.UDPMinimumSize:], payload)
	sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber, src, dst, uint16(length))
	u.SetChecksum(^u.CalculateChecksum(checksum.Checksum(payload, sum)))
	return p
}

func addrOf(a tcpip.Address) netip.Addr {
	out, _ := netip.AddrFromSlice(a.AsSlice())
	return out
}
