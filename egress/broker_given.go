package egress

import (
	"bytes"
	"slices"
	"sync"

	"github.com/brig-run/brig"
)

// maxGiven bounds how many values a sandbox's way out remembers.
const maxGiven = 64

// given remembers the values that went out for a sandbox, and where. A host
// may tell one after it was replaced by another, or taken from the host.
type given struct {
	mu   sync.Mutex
	list []grant // the oldest first
}

// add remembers values.
func (g *given) add(grants []grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range grants {
		if i := slices.IndexFunc(g.list, func(o grant) bool {
			return bytes.Equal(o.value, n.value) && o.Placeholder == n.Placeholder && slices.Equal(o.Hosts, n.Hosts)
		}); i >= 0 {
			g.list = slices.Delete(g.list, i, i+1)
		}
		g.list = append(g.list, n)
	}
	g.list = g.list[max(0, len(g.list)-maxGiven):]
}

// to returns the values that a host may have got.
func (g *given) to(host string) (out []grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.list {
		if slices.ContainsFunc(n.Hosts, func(h string) bool { return brig.MatchHost(h, host) }) {
			out = append(out, n)
		}
	}
	return out
}
