package egress

import (
	"net/netip"
	"sync"

	"github.com/brig-run/brig"
)

// maxNames bounds the names that one sandbox may have resolved.
const maxNames = 1 << 16

// names gives every name an address of its own, which is nowhere in use: a
// connection to it says for which name it is.
type names struct {
	mu     sync.Mutex // guards the fields below
	byName map[string]netip.Addr
	byAddr map[netip.Addr]string
	next   netip.Addr
}

func newNames() *names {
	first := brig.UplinkNetwork.Masked().Addr()
	for range 16 {
		first = first.Next() // beyond the gateway and the sandbox
	}
	return &names{byName: map[string]netip.Addr{}, byAddr: map[netip.Addr]string{}, next: first}
}

// address returns the address that stands for a name; false when there are
// too many of them.
func (n *names) address(name string) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.byName[name]; ok {
		return a, true
	}
	if len(n.byName) >= maxNames || !brig.UplinkNetwork.Contains(n.next) {
		return netip.Addr{}, false
	}
	a := n.next
	n.next = a.Next()
	n.byName[name], n.byAddr[a] = a, name
	return a, true
}

// name returns the name that an address stands for.
func (n *names) name(a netip.Addr) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, ok := n.byAddr[a]
	return s, ok
}
