package kernels

import (
	"io"
	"sync"

	"github.com/brig-run/brig"
)

// What a tenant may have of this door at once: connections, and bytes of
// messages that are read, wait or are acted upon.
const (
	maxConnections = 256
	maxHeld        = 64 << 20
)

// connections counts those to each kernel, and what each tenant has of them.
type connections struct {
	mu      sync.Mutex // guards the fields below
	by      map[string]int
	tenants map[string]*traffic
}

// traffic is what a tenant has of connections.
type traffic struct {
	open int
	held int // bytes
}

// share is one connection's part of its tenant's traffic.
type share struct {
	all  *connections
	of   *traffic
	held int // guarded by all.mu
}

// enter counts a tenant's connection to a kernel until leave is called, which
// gives back all that it still holds.
func (c *connections) enter(tenant, id string) (s *share, leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.tenants[tenant]
	if of == nil {
		of = &traffic{}
		c.tenants[tenant] = of
	}
	if of.open >= maxConnections {
		return nil, nil, brig.Errorf(brig.RateLimited, "there are %d connections to kernels already", of.open).WithHint("close one that is not used")
	}
	of.open++
	c.by[id]++
	s = &share{all: c, of: of}
	return s, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		of.held -= s.held
		if of.open--; of.open == 0 {
			delete(c.tenants, tenant)
		}
		if c.by[id]--; c.by[id] == 0 {
			delete(c.by, id)
		}
	}, nil
}

func (c *connections) count(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[id]
}

// hold counts n more bytes, or so many fewer, unless they are too many.
func (s *share) hold(n int) error {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if n > 0 && s.of.held+n > maxHeld {
		return brig.Errorf(brig.RateLimited, "messages of %s wait already", brig.FormatBytes(maxHeld))
	}
	s.held, s.of.held = s.held+n, s.of.held+n
	return nil
}

// free gives n bytes back.
func (s *share) free(n int) { _ = s.hold(-n) } // fewer are never too many

// counting reads as from does, and counts as it goes: a message may end at any
// time, and not every one that begins is whole.
type counting struct {
	from  io.Reader
	share *share
}

// Read implements io.Reader.
func (c counting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if over := c.share.hold(n); over != nil {
		return 0, over
	}
	return n, err
}
