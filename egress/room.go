package egress

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// guaranteedFlows is the number of connections that one sandbox may have
	// while more than half of the capacity is used. It prevents a few sandboxes
	// from using all connections.
	guaranteedFlows = 64
	// wideBufferConns is the number of open connections of all sandboxes up to
	// which a new connection gets wide buffers. Further connections get narrow
	// buffers, and are slower.
	wideBufferConns = 256
	// The size of the network stack's buffers of a connection in each
	// direction. The path is local to this host, so wide buffers suffice for
	// its full speed.
	wideBuffer   = 1 << 20
	narrowBuffer = 8 << 10
)

// ConnLimiter limits the connections of all sandboxes of a server. Each
// connection uses a file descriptor and some memory of the server, and many
// sandboxes with the maximum of each would exhaust both.
type ConnLimiter struct {
	limit int64
	open  atomic.Int64
}

// NewConnLimiter returns a limiter that allows up to the given number of
// connections.
func NewConnLimiter(limit int) *ConnLimiter { return &ConnLimiter{limit: int64(limit)} }

// DefaultConnLimiter returns a limiter for half as many connections as this
// process may have file descriptors, and at most 8192.
func DefaultConnLimiter() *ConnLimiter {
	conns := int64(8192)
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil && l.Cur/2 < uint64(conns) {
		conns = int64(l.Cur / 2)
	}
	return &ConnLimiter{limit: conns}
}

// acquire reserves a connection for a sandbox that already has count connections. It returns false
// if none is available.
func (r *ConnLimiter) acquire(count int) bool {
	n := r.open.Add(1)
	if n > r.limit || n > r.limit/2 && count >= guaranteedFlows {
		r.open.Add(-1)
		return false
	}
	return true
}

func (r *ConnLimiter) release() { r.open.Add(-1) }

// bufferSize is a size of a connection's buffers. A connection may have it
// while the sandbox uses at most within/8 of its memory.
type bufferSize struct{ each, within int64 }

// buffers returns the buffer sizes that a connection may have now, largest
// first.
func (r *ConnLimiter) buffers() []bufferSize {
	all := []bufferSize{{wideBuffer, 2}, {256 << 10, 3}, {64 << 10, 4}, {narrowBuffer, 8}}
	if r.open.Load() > wideBufferConns {
		return all[2:]
	}
	return all
}
