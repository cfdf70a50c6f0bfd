package hostaddr

import (
	"net/netip"
	"slices"
	"testing"
)

func TestEmbeddedReturnsIPv4Addresses(t *testing.T) {
	for in, want := range map[string][]string{
		"203.0.113.7":                      nil,
		"2001:db8::203.0.113.7":            nil,
		"::ffff:203.0.113.7":               {"203.0.113.7"},
		"::203.0.113.7":                    {"203.0.113.7"},
		"::ffff:0:203.0.113.7":             {"203.0.113.7"},
		"64:ff9b::203.0.113.7":             {"203.0.113.7"},
		"2002:cb00:7107::1":                {"203.0.113.7"},
		"2001:0:cb00:7107::34ff:8ef8":      {"203.0.113.7"}, // the Teredo server and client have the same address
		"2001:0:102:304::34ff:8ef8":        {"1.2.3.4", "203.0.113.7"},
		"64:ff9b:1:cb00:71:700::":          {"203.0.113.7"},
		"64:ff9b:1::203.0.113.7":           {"203.0.113.7"},
		"2001:db8::5efe:203.0.113.7":       {"203.0.113.7"},
		"2001:db8:0:0:200:5efe:cb00:7107":  {"203.0.113.7"},
		"2001:db8:0:0:8200:5efe:cb00:7107": nil,
	} {
		got := EmbeddedIPv4(netip.MustParseAddr(in))
		for _, w := range want {
			if !slices.Contains(got, netip.MustParseAddr(w)) {
				t.Errorf("%s: %v, without %s", in, got, w)
			}
		}
		if want == nil && got != nil {
			t.Errorf("%s: %v", in, got)
		}
	}
}

func TestIsHostReportsHostAddresses(t *testing.T) {
	Declare([]netip.Prefix{netip.MustParsePrefix("198.51.100.7/32"), netip.MustParsePrefix("2001:db8:7::/64")})
	defer Declare(nil)
	for _, own := range []string{
		"127.0.0.1", "127.9.9.9", "0.0.0.0", "::", "::1", "::ffff:127.0.0.1",
		"198.51.100.7", "::ffff:198.51.100.7", "64:ff9b::198.51.100.7", "2002:c633:6407::1", "2001:db8:7::1",
	} {
		if !IsHost(netip.MustParseAddr(own)) {
			t.Errorf("%s is not this machine's", own)
		}
	}
	if !IsHost(netip.Addr{}) {
		t.Error("no address is somebody else's")
	}
	for _, other := range []string{"198.51.100.8", "2001:db8:8::1", "64:ff9b::198.51.100.8"} {
		if IsHost(netip.MustParseAddr(other)) {
			t.Errorf("%s is this machine's", other)
		}
	}
	Declare(nil)
	if IsHost(netip.MustParseAddr("198.51.100.7")) {
		t.Error("what is not declared any more is this machine's")
	}
}

func BenchmarkHas(b *testing.B) {
	a := netip.MustParseAddr("198.51.100.7")
	for b.Loop() {
		IsHost(a)
	}
}
