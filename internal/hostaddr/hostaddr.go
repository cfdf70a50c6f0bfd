// Package hostaddr detects addresses of the host. Callers must not connect to these addresses
// through the server unless the operator permits it.
package hostaddr

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// declared holds the addresses that are routed to the host but are not assigned to any of its
// interfaces, such as the public address of a host behind NAT.
var declared atomic.Pointer[[]netip.Prefix]

// Declare replaces the list of additional addresses of the host.
func Declare(more []netip.Prefix) { declared.Store(&more) }

// IsHost reports whether the host is reachable at an address, or at an IPv4 address embedded in
// the address. It queries the kernel on each call, because addresses change. It returns true if
// the query fails.
func IsHost(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsValid() || isOwn(a) {
		return true
	}
	for _, e := range EmbeddedIPv4(a) {
		if isOwn(e) {
			return true
		}
	}
	return false
}

func isOwn(a netip.Addr) bool {
	if a.IsUnspecified() || a.IsLoopback() {
		return true
	}
	if list := declared.Load(); list != nil {
		for _, p := range *list {
			if p.Contains(a) {
				return true
			}
		}
	}
	local, ok := isRoutedLocally(a)
	return local || !ok || isOnInterface(a)
}

// isRoutedLocally reports whether the kernel's route to an address is local. The host is also
// reachable at addresses that have a local route but no interface.
func isRoutedLocally(a netip.Addr) (local, ok bool) {
	routes, err := netlink.RouteGet(net.IP(a.AsSlice()))
	if err != nil {
		// If the kernel returns an error, the address has no local route: the kernel has no
		// route to the address, does not support the address family, or forbids the query. IsHost
		// also checks the interfaces.
		var errno unix.Errno
		return false, errors.As(err, &errno)
	}
	for i := range routes {
		switch routes[i].Type {
		case unix.RTN_LOCAL, unix.RTN_ANYCAST, unix.RTN_BROADCAST:
			return true, true
		}
	}
	return false, true
}

func isOnInterface(a netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, i := range list {
		if p, ok := i.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(p.IP); ok && own.Unmap() == a {
				return true
			}
		}
	}
	return false
}
