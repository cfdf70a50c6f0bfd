package hostaddr

import (
	"net/netip"
	"slices"
)

// Networks whose IPv6 addresses embed IPv4 addresses.
var (
	compatible = netip.MustParsePrefix("::/96")
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765
	sixToFour  = netip.MustParsePrefix("2002::/16")       // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")       // RFC 4380
	nat64      = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215
)

// EmbeddedIPv4 returns the IPv4 addresses to which a translator or a tunnel may
// forward packets for an IPv6 address.
func EmbeddedIPv4(a netip.Addr) []netip.Addr {
	if a.Is4In6() {
		return []netip.Addr{a.Unmap()}
	}
	if !a.Is6() {
		return nil
	}
	b := a.As16()
	var out []netip.Addr
	add := func(w, x, y, z byte) {
		if e := netip.AddrFrom4([4]byte{w, x, y, z}); !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	last := func() { add(b[12], b[13], b[14], b[15]) }
	switch a = a.WithZone(""); {
	case compatible.Contains(a), translated.Contains(a), nat64.Contains(a):
		last()
	case sixToFour.Contains(a):
		add(b[2], b[3], b[4], b[5])
	case teredo.Contains(a):
		add(b[4], b[5], b[6], b[7])
		add(^b[12], ^b[13], ^b[14], ^b[15])
	case nat64Local.Contains(a):
		// The network-specific prefix may have any of the lengths of RFC 6052.
		add(b[6], b[7], b[9], b[10])
		add(b[7], b[9], b[10], b[11])
		add(b[9], b[10], b[11], b[12])
		last()
	}
	// ISATAP (RFC 5214) marks the interface identifier.
	if (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe {
		last()
	}
	return out
}
