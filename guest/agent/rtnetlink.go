package agent

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// rtnetlink is a connection to the sandbox's kernel for changes to its network.
type rtnetlink struct{ fd int }

func openRtnetlink() (*rtnetlink, error) {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	return &rtnetlink{fd}, nil
}

func (n *rtnetlink) close() { syscall.Close(n.fd) }

// do sends a request and returns the kernel's result.
func (n *rtnetlink) do(request []byte) error {
	kernel := &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}
	if err := syscall.Sendto(n.fd, request, 0, kernel); err != nil {
		return err
	}
	b := make([]byte, 4096)
	got, _, err := syscall.Recvfrom(n.fd, b, 0)
	if err != nil {
		return err
	}
	msgs, err := syscall.ParseNetlinkMessage(b[:got])
	if err != nil {
		return err
	}
	if len(msgs) != 1 || msgs[0].Header.Type != syscall.NLMSG_ERROR || len(msgs[0].Data) < 4 {
		return syscall.EPROTO
	}
	if errno := -int32(binary.NativeEndian.Uint32(msgs[0].Data)); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}

// configure configures an interface with an address and a default route, and
// brings it up.
func configure(name string, address netip.Prefix, gateway netip.Addr, mtu int) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	n, err := openRtnetlink()
	if err != nil {
		return err
	}
	defer n.close()
	// Ignore the error, because a kernel without IPv6 rejects this request and does not need it.
	_ = n.do(disableIPv6Request(i.Index))
	for _, step := range []struct {
		name    string
		request []byte
	}{
		{"set the interface's size of packets", linkRequest(i.Index, mtu)},
		{"add the interface's address", addressRequest(i.Index, address)},
		{"add a route", routeRequest(i.Index, gateway)},
	} {
		if err := n.do(step.request); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// linkRequest returns a request that brings an interface up and sets its MTU.
func linkRequest(index, mtu int) []byte {
	b := requestHeader(syscall.RTM_NEWLINK, 0)
	b = append(b, syscall.AF_UNSPEC, 0, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = binary.NativeEndian.AppendUint32(b, syscall.IFF_UP) // the flags
	b = binary.NativeEndian.AppendUint32(b, syscall.IFF_UP) // the mask of changed flags
	b = appendAttribute(b, syscall.IFLA_MTU, binary.NativeEndian.AppendUint32(nil, uint32(mtu)))
	return setLength(b)
}

// disableIPv6Request returns a request that prevents the kernel from assigning
// an IPv6 address to an interface when it comes up.
func disableIPv6Request(index int) []byte {
	const afSpec, addrGenMode, none = 26, 8, 1 // IFLA_AF_SPEC, IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE
	b := requestHeader(syscall.RTM_NEWLINK, 0)
	b = append(b, syscall.AF_UNSPEC, 0, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = append(b, make([]byte, 8)...) // flags are unchanged
	mode := appendAttribute(nil, addrGenMode, []byte{none})
	mode = append(mode, 0, 0, 0) // padding to four bytes
	return setLength(appendAttribute(b, afSpec, appendAttribute(nil, syscall.AF_INET6, mode)))
}

// addressRequest returns a request that assigns an IPv4 address with its prefix
// to an interface.
func addressRequest(index int, p netip.Prefix) []byte {
	b := requestHeader(syscall.RTM_NEWADDR, syscall.NLM_F_CREATE|syscall.NLM_F_EXCL)
	b = append(b, syscall.AF_INET, byte(p.Bits()), 0, syscall.RT_SCOPE_UNIVERSE)
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = appendAttribute(b, syscall.IFA_LOCAL, p.Addr().AsSlice())
	b = appendAttribute(b, syscall.IFA_ADDRESS, p.Addr().AsSlice())
	return setLength(b)
}

// routeRequest returns a request that adds a default route to a gateway.
func routeRequest(index int, gateway netip.Addr) []byte {
	b := requestHeader(syscall.RTM_NEWROUTE, syscall.NLM_F_CREATE|syscall.NLM_F_EXCL)
	b = append(b, syscall.AF_INET, 0, 0, 0, syscall.RT_TABLE_MAIN, syscall.RTPROT_BOOT, syscall.RT_SCOPE_UNIVERSE, syscall.RTN_UNICAST)
	b = binary.NativeEndian.AppendUint32(b, 0) // no flags
	b = appendAttribute(b, syscall.RTA_GATEWAY, gateway.AsSlice())
	b = appendAttribute(b, syscall.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(index)))
	return setLength(b)
}

// requestHeader returns the header of a request with acknowledgment. The caller sets the length at
// the end.
func requestHeader(kind, flags uint16) []byte {
	b := make([]byte, 4, 64)
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, syscall.NLM_F_REQUEST|syscall.NLM_F_ACK|flags)
	return append(b, make([]byte, 8)...) // sequence number and port are zero, because there is only one request at a time
}

func setLength(b []byte) []byte {
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

// appendAttribute appends an attribute. It does not add the padding that an odd size
// requires.
func appendAttribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(b, value...)
}
