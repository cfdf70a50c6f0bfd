package egress

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/brig-run/brig"
)

// maxSentValues limits how many values are remembered for a sandbox; maxValues
// limits their total length.
const maxSentValues = 64

// sentValues records the values that were sent for a sandbox, and the hosts that received them. A
// host may echo a value after the secret was replaced or unbound from the host.
type sentValues struct {
	mu   sync.Mutex    // guards the fields below
	list []boundSecret // oldest first

	scrubbers map[[sha256.Size]byte]*sharedScrubber
	idle      *sharedScrubber // used most recently; it may be in use again

	seen func(piece []byte) // receives the searched pieces, in tests
}

// add records values that were sent.
func (g *sentValues) add(grants []boundSecret) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range grants {
		if i := slices.IndexFunc(g.list, func(o boundSecret) bool {
			return bytes.Equal(o.value, n.value) && o.Placeholder == n.Placeholder && slices.Equal(o.Hosts, n.Hosts)
		}); i >= 0 {
			g.list = slices.Delete(g.list, i, i+1)
		}
		g.list = append(g.list, n)
	}
	total := 0
	for i := len(g.list) - 1; i >= 0; i-- {
		if total += len(g.list[i].value); i < len(g.list)-maxSentValues || total > maxValues {
			g.list = slices.Clone(g.list[i+1:])
			break
		}
	}
}

// receivedBy returns the values that a host may have received.
func (g *sentValues) receivedBy(host string) (out []boundSecret) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.list {
		if slices.ContainsFunc(n.Hosts, func(h string) bool { return brig.MatchHost(h, host) }) {
			out = append(out, n)
		}
	}
	return out
}
