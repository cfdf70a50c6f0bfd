package brig

import (
	"net/netip"
	"strings"
)

// special are the networks outside of the public internet. A connection to one of
// these networks needs explicit permission. The list contains the IANA
// special-purpose address registries, except the unused documentation networks, and
// the metadata address of one cloud. The last entries cover all of IPv6 except
// 2000::/3, the only allocated part, because a translator on the path may map other
// addresses to IPv4.
var special = func() []netip.Prefix {
	var out []netip.Prefix
	for s := range strings.FieldsSeq(`
		0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12
		168.63.129.16/32 192.0.0.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 224.0.0.0/4 240.0.0.0/4
		::/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23
		2002::/16 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8
		::/3 4000::/2 8000::/1`) {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}()

// SpecialNetwork returns the special-purpose network (not public internet) that
// contains addr. It also reports an invalid address as special.
func SpecialNetwork(addr netip.Addr) (netip.Prefix, bool) {
	if !addr.IsValid() {
		return netip.Prefix{}, true
	}
	addr = addr.Unmap().WithZone("")
	for _, p := range special {
		if p.Contains(addr) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// InSpecialNetwork reports whether a network is entirely within a special
// network, so that a rule with this network permits special addresses.
func InSpecialNetwork(p netip.Prefix) bool {
	special, ok := SpecialNetwork(p.Addr())
	return ok && p.Bits() >= special.Bits()
}

// The addresses inside every sandbox, from a network that is not used publicly (RFC
// 2544). All sandboxes use the same addresses, because no sandbox can connect to
// another.
var (
	// UplinkNetwork is the sandbox's own address with the prefix of its network.
	// Inside the sandbox, host names resolve to addresses of this network, too.
	UplinkNetwork = netip.MustParsePrefix("198.18.0.2/15")
	// UplinkGateway is the address of the gateway and the resolver.
	UplinkGateway = netip.MustParseAddr("198.18.0.1")
)

// UplinkMTU is the size of the largest packet. It is the maximum possible,
// because packets never cross a physical network.
const UplinkMTU = 65535

// Uplink is the host's end of an instance's network interface. It transfers
// whole IP packets, one per call. Receive and Send may be called concurrently.
//
// An Uplink ends when the instance ends, when another Uplink replaces it, or when
// it is closed; every call then returns an error. It remains usable after a freeze
// of the instance. The caller of Instance.Uplink must always close it.
type Uplink interface {
	// Receive reads the next packet from the instance into p, which must have a
	// capacity of UplinkMTU bytes. The guest may have forged the packet.
	Receive(p []byte) (int, error)
	// Send sends a packet to the instance. It never blocks: a packet that does
	// not fit the instance's buffer is dropped.
	Send(p []byte) error
	// Close removes the interface from the instance. It may be called repeatedly.
	Close() error
}
