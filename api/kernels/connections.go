package kernels

import (
	"io"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Limits of a tenant's connections to this API, and of the bytes of messages
// that are being read, queued or processed.
const (
	maxConnections = 256
	maxReserved    = 64 << 20
)

// connections counts the connections to each kernel and of each tenant.
type connections struct {
	mu       sync.Mutex // guards the fields below
	byTenant map[string]int
	tenants  map[string]*tenantUsage
	drained  chan struct{} // closed when no connection is left; nil if wait is not running
}

// tenantUsage is the usage of a tenant.
type tenantUsage struct {
	open     int
	reserved int // bytes
}

// share is the part of a tenant's usage that belongs to one connection.
type share struct {
	all      *connections
	usage    *tenantUsage
	reserved int // guarded by all.mu
}

// acquire counts a tenant's connection to a kernel until release is called.
// release also frees the bytes that the connection still reserves.
func (c *connections) acquire(tenant, id string) (s *share, release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.tenants[tenant]
	if of == nil {
		of = &tenantUsage{}
		c.tenants[tenant] = of
	}
	if of.open >= maxConnections {
		return nil, nil, brig.Errorf(brig.RateLimited, "there are %d connections to kernels, which is the limit", of.open).WithHint("close one that is not used")
	}
	of.open++
	c.byTenant[id]++
	s = &share{all: c, usage: of}
	return s, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		of.reserved -= s.reserved
		if of.open--; of.open == 0 {
			delete(c.tenants, tenant)
		}
		if len(c.tenants) == 0 && c.drained != nil {
			close(c.drained)
			c.drained = nil
		}
		if c.byTenant[id]--; c.byTenant[id] == 0 {
			delete(c.byTenant, id)
		}
	}, nil
}

// wait waits until no connection is left, but not longer than limit.
func (c *connections) wait(limit time.Duration) {
	c.mu.Lock()
	if len(c.tenants) == 0 {
		c.mu.Unlock()
		return
	}
	if c.drained == nil {
		c.drained = make(chan struct{})
	}
	drained := c.drained
	c.mu.Unlock()
	select {
	case <-drained:
	case <-time.After(limit):
	}
}

func (c *connections) count(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byTenant[id]
}

// reserve counts n more bytes. It returns RateLimited if the tenant would
// exceed its limit. A negative n frees bytes.
func (s *share) reserve(n int) error {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if n > 0 && s.usage.reserved+n > maxReserved {
		return brig.Errorf(brig.RateLimited, "messages of %s wait already", brig.FormatBytes(maxReserved))
	}
	s.reserved, s.usage.reserved = s.reserved+n, s.usage.reserved+n
	return nil
}

// free frees n bytes.
func (s *share) free(n int) { _ = s.reserve(-n) } // a negative number never exceeds the limit

// countingReader reserves memory for the bytes that it reads. It counts while
// reading, because a message may end at any time and may be incomplete.
type countingReader struct {
	from  io.Reader
	share *share
}

// Read implements io.Reader.
func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if rejection := c.share.reserve(n); rejection != nil {
		return 0, rejection
	}
	return n, err
}
