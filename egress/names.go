package egress

import (
	"container/list"
	"net/netip"
	"sync"

	"github.com/brig-run/brig"
)

// maxNames limits how many names of one sandbox have an address at the same
// time.
const maxNames = 4096

// names assigns every name an address that is not used on any network, so that a connection to the
// address identifies the name. A new name replaces the least recently used one. An address is
// reused only after all other addresses of the network have been used.
type names struct {
	mu     sync.Mutex // guards the fields below
	byName map[string]*list.Element
	byAddr map[netip.Addr]*list.Element
	used   *list.List // of *named, the most recently used first
	next   netip.Addr
}

type nameEntry struct {
	name string
	addr netip.Addr
}

func newNames() *names {
	return &names{byName: map[string]*list.Element{}, byAddr: map[netip.Addr]*list.Element{}, used: list.New(), next: firstNameAddr()}
}

// firstNameAddr returns the first address that may be assigned to a name.
func firstNameAddr() netip.Addr {
	first := brig.UplinkNetwork.Masked().Addr()
	for range 16 {
		first = first.Next() // skip the addresses of the gateway and the sandbox
	}
	return first
}

// assignAddress returns the address of a name, and assigns one if needed.
func (n *names) assignAddress(name string) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e, ok := n.byName[name]; ok {
		n.used.MoveToFront(e)
		return e.Value.(*nameEntry).addr
	}
	if n.used.Len() >= maxNames {
		oldest := n.used.Remove(n.used.Back()).(*nameEntry)
		delete(n.byName, oldest.name)
		delete(n.byAddr, oldest.addr)
	}
	for n.byAddr[n.next] != nil { // there are many more addresses than names
		n.advance()
	}
	e := n.used.PushFront(&nameEntry{name, n.next})
	n.byName[name], n.byAddr[n.next] = e, e
	n.advance()
	return e.Value.(*nameEntry).addr
}

// advance moves to the next address, and from the last one to the first.
func (n *names) advance() {
	if n.next = n.next.Next(); !brig.UplinkNetwork.Contains(n.next.Next()) {
		n.next = firstNameAddr()
	}
}

// lookupName returns the name to which an address is assigned.
func (n *names) lookupName(a netip.Addr) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e, ok := n.byAddr[a]
	if !ok {
		return "", false
	}
	n.used.MoveToFront(e)
	return e.Value.(*nameEntry).name, true
}
