package egress

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"slices"
)

// maxValues limits the total length of the values that a host may receive: the
// forms of each value take about forty times its length.
const maxValues = 64 << 10

// sharedScrubber is a scrubber that the requests of a sandbox share if they use the
// same values.
type sharedScrubber struct {
	*scrubber
	key   [sha256.Size]byte
	cost  int64
	users int
}

// formsCost returns the memory of a scrubber: the forms of its values and their
// search index.
func formsCost(grants []boundSecret) (n int64) {
	for _, g := range grants {
		n += 40*int64(len(g.value)+len(g.Placeholder)) + 28<<10
	}
	return n
}

// scanCost returns the memory that one search of a text needs in addition to
// searchCost: the end of the text in each view, where its escapes are, and the
// matches. TestSearchesAreCharged measures it.
func (s *scrubber) scanCost() int64 {
	n := s.values.maxLength + 16*len(s.values.list) + maxHits*hitCost
	for v, l := range s.values.longest {
		n += 2 * l
		if view(v) != asWritten { // each byte may have come from an escape
			n += (l + step/4) * jumpCost
		}
	}
	return int64(n)
}

// The memory of a match, and of an escape in a view, in a slice that has grown.
const (
	hitCost  = 32
	jumpCost = 16 // not every byte of every view is an escape
)

// acquireScrubber returns the scrubber for a set of values, and counts one more user. It
// charges the sandbox for a new scrubber, and returns nil if no memory is left.
func (g *sentValues) acquireScrubber(b *budget, grants []boundSecret) *sharedScrubber {
	h := sha256.New()
	for _, v := range grants {
		for _, part := range [][]byte{[]byte(v.Placeholder), v.value, []byte(v.Name)} {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
			h.Write(part)
		}
	}
	key := [sha256.Size]byte(h.Sum(nil))
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.scrubbers[key]; s != nil {
		s.users++
		return s
	}
	cost := formsCost(grants)
	if !b.reserve(cost, b.reservedForConnections()) {
		// Free the idle scrubber, if there is one.
		if g.idle == nil || g.idle.users > 0 {
			return nil
		}
		g.drop(b, g.idle)
		if !b.reserve(cost, b.reservedForConnections()) {
			return nil
		}
	}
	s := &sharedScrubber{scrubber: newScrubber(grants, nil), key: key, cost: cost, users: 1}
	s.values.seen, s.names.seen = g.seen, g.seen
	if g.scrubbers == nil {
		g.scrubbers = map[[sha256.Size]byte]*sharedScrubber{}
	}
	g.scrubbers[key] = s
	return s
}

// releaseScrubber releases a scrubber. The most recently used one is kept for
// the next request.
func (g *sentValues) releaseScrubber(b *budget, s *sharedScrubber) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	if g.idle != nil && g.idle != s && g.idle.users == 0 {
		g.drop(b, g.idle)
	}
	g.idle = s
}

// drop removes an unused scrubber. The caller holds g.mu.
func (g *sentValues) drop(b *budget, s *sharedScrubber) {
	delete(g.scrubbers, s.key)
	b.release(s.cost)
	if g.idle == s {
		g.idle = nil
	}
}

// prepareScrubber arranges that the response to the request is searched for values.
func (x *exchange) prepareScrubber(earlier []boundSecret) *refusal {
	all := slices.Clone(x.grants)
	for _, e := range earlier {
		if !slices.ContainsFunc(all, func(g boundSecret) bool { return bytes.Equal(g.value, e.value) && g.Placeholder == e.Placeholder }) {
			all = append(all, e)
		}
	}
	if x.shared = x.n.valuesSent.acquireScrubber(x.n.budget, all); x.shared == nil {
		return &refusal{http.StatusServiceUnavailable, reasonNoMemory}
	}
	x.scrub = x.shared.scrubber
	if len(x.pairs) > 0 {
		if refused := x.charge(16<<10 + 100*int64(len(x.scrub.values.list))); refused != nil {
			return refused
		}
		x.scrub = x.scrub.withCredentials(x.pairs)
	}
	cost := x.scrub.scanCost()
	if x.in.Header["Upgrade"] != nil {
		cost *= 2 // of a WebSocket's messages, and of its control frames
	}
	return x.charge(cost)
}
