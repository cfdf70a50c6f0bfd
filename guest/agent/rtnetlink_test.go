package agent

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"syscall"
	"testing"
)

// The parser of the standard library decodes the requests correctly.
func TestRtnetlinkRequestsAreWellFormed(t *testing.T) {
	half := func(v uint16) []byte { return binary.NativeEndian.AppendUint16(nil, v) }
	index := binary.NativeEndian.AppendUint32(nil, 7)
	for _, c := range []struct {
		name    string
		request []byte
		kind    uint16
		flags   uint16
		attrs   map[uint16][]byte
	}{
		{"link", linkRequest(7, 65535), syscall.RTM_NEWLINK, 0,
			map[uint16][]byte{syscall.IFLA_MTU: binary.NativeEndian.AppendUint32(nil, 65535)}},
		{"no IPv6", disableIPv6Request(7), syscall.RTM_NEWLINK, 0,
			map[uint16][]byte{26: slices.Concat(half(12), half(syscall.AF_INET6), half(5), half(8), []byte{1, 0, 0, 0})}},
		{"address", addressRequest(7, netip.MustParsePrefix("198.18.0.2/15")), syscall.RTM_NEWADDR, syscall.NLM_F_CREATE | syscall.NLM_F_EXCL,
			map[uint16][]byte{syscall.IFA_LOCAL: {198, 18, 0, 2}, syscall.IFA_ADDRESS: {198, 18, 0, 2}}},
		{"route", routeRequest(7, netip.MustParseAddr("198.18.0.1")), syscall.RTM_NEWROUTE, syscall.NLM_F_CREATE | syscall.NLM_F_EXCL,
			map[uint16][]byte{syscall.RTA_GATEWAY: {198, 18, 0, 1}, syscall.RTA_OIF: index}},
	} {
		msgs, err := syscall.ParseNetlinkMessage(c.request)
		if err != nil || len(msgs) != 1 || int(msgs[0].Header.Len) != len(c.request) {
			t.Errorf("%s: %d messages, %v", c.name, len(msgs), err)
			continue
		}
		h := msgs[0].Header
		if want := c.flags | syscall.NLM_F_REQUEST | syscall.NLM_F_ACK; h.Type != c.kind || h.Flags != want {
			t.Errorf("%s: type %d, flags %x, want %d and %x", c.name, h.Type, h.Flags, c.kind, want)
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(&msgs[0])
		if err != nil || len(attrs) != len(c.attrs) {
			t.Errorf("%s: %d attributes, %v", c.name, len(attrs), err)
		}
		for _, a := range attrs {
			if !slices.Equal(a.Value, c.attrs[a.Attr.Type]) {
				t.Errorf("%s: attribute %d is %v", c.name, a.Attr.Type, a.Value)
			}
		}
	}
}
