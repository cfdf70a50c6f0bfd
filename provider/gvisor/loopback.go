package gvisor

import "net"

// links are the network that a guest has: gVisor's own loopback, in gVisor's
// words.
type links struct{ LoopbackLinks []link }

type link struct {
	Name      string
	Addresses []linkAddress
	Routes    []linkRoute
	GVisorGRO bool
}

type linkAddress struct {
	Address   net.IP
	PrefixLen int
}

type linkRoute struct{ Destination net.IPNet }

// loopback is what a sentry is told of a guest's network.
func loopback() links {
	v4, v6 := net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback
	return links{[]link{{
		Name:      "lo",
		Addresses: []linkAddress{{v4, 8}, {v6, 128}},
		Routes: []linkRoute{
			{net.IPNet{IP: net.IPv4(127, 0, 0, 0), Mask: net.CIDRMask(8, 32)}},
			{net.IPNet{IP: v6, Mask: net.CIDRMask(128, 128)}},
		},
	}}}
}
