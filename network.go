package brig

import (
	"net/netip"
	"strings"
)

// special are the networks that are not the public internet: nothing is
// reached there by accident. From the IANA special-purpose address registries,
// without those for documentation, where nothing is; with the address at which
// one cloud has its metadata.
var special = func() []netip.Prefix {
	var out []netip.Prefix
	for s := range strings.FieldsSeq(`
		0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12
		168.63.129.16/32 192.0.0.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 224.0.0.0/4 240.0.0.0/4
		::/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23
		2002::/16 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8`) {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}()

// SpecialNetwork returns the network that is not the public internet and that
// addr is in. What is no address is in one.
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

// InSpecialNetwork reports whether all of a network is within one that is not
// the public internet: whether a rule with it names such a network.
func InSpecialNetwork(p netip.Prefix) bool {
	special, ok := SpecialNetwork(p.Addr())
	return ok && p.Bits() >= special.Bits()
}
