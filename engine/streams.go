package engine

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/quota"
)

// StreamLimits limits long-lived streams of sandboxes: watches, attached processes, followed logs,
// downloads and connections to ports. Each stream uses memory of the sandbox's agent and of the
// server. A zero field selects the default.
type StreamLimits struct {
	// Sandbox is the maximum number of watches, attached processes, followed logs and downloads of
	// one sandbox. One key or person may have half of these streams. Connections is the maximum
	// number of connections to its ports.
	Sandbox, Connections int
	// Key and Tenant are the maximum numbers of streams of both kinds for one key or person, and
	// for one tenant. Watches have the same limits, but count separately: clients that poll a watch
	// keep it open until the sandbox ends.
	Key, Tenant int
}

// Defaults of StreamLimits.
const (
	defaultStreams       = 256
	defaultConnections   = 512
	defaultKeyStreams    = 512
	defaultTenantStreams = 2048
)

// streams counts the open streams.
type streams struct {
	limits StreamLimits

	mu      sync.Mutex // guards byOwner
	byOwner map[streamOwner]int
}

// streamOwner is the owner of counted streams: a sandbox, for one kind of
// stream, a caller at a sandbox, or a caller or a tenant.
type streamOwner struct {
	kind    string
	caller  quota.Caller // only its tenant for streams of all callers
	sandbox brig.ID
}

func newStreams(l StreamLimits) *streams {
	for _, f := range []struct {
		n        *int
		standard int
	}{{&l.Sandbox, defaultStreams}, {&l.Connections, defaultConnections}, {&l.Key, defaultKeyStreams}, {&l.Tenant, defaultTenantStreams}} {
		if *f.n == 0 {
			*f.n = f.standard
		}
	}
	return &streams{limits: l, byOwner: map[streamOwner]int{}}
}

// retryStreams is the suggested delay before a rejected stream is retried.
const retryStreams = 2 * time.Second

// reserve counts one more stream of a call until release is called. Later calls of
// release have no effect.
func (s *streams) reserve(v *call) (release func(), err error) {
	kind, limit, what := "stream", s.limits.Sandbox, "watches, attached processes, followed logs and downloads"
	if v.op == brig.OpDial {
		kind, limit, what = "connection", s.limits.Connections, "connections to its ports"
	}
	all, streamsOf := "", "streams of sandboxes"
	if v.op == brig.OpWatch {
		all, streamsOf = "watch ", "watches in sandboxes"
	}
	type bound struct {
		of     streamOwner
		limit  int
		format string
	}
	bounds := []bound{
		{streamOwner{kind, quota.Caller{Tenant: v.rec.Tenant}, v.rec.ID}, limit, "the sandbox has %d " + what + " open already"},
		{streamOwner{all + "tenant", quota.Caller{Tenant: v.actor.Tenant}, ""}, s.limits.Tenant, "the tenant has %d " + streamsOf + " open already"},
	}
	if who := quota.CallerOf(v.actor); who.Limited {
		bounds = append(bounds, bound{streamOwner{all + "caller", who, ""}, s.limits.Key, "the caller has %d " + streamsOf + " open already"})
		if kind == "stream" {
			// A viewer's watches must not prevent the downloads of everyone else.
			half := (limit + 1) / 2
			bounds = append(bounds, bound{streamOwner{kind, who, v.rec.ID}, half, "the caller has %d " + what + " of the sandbox open already"})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range bounds {
		if n := s.byOwner[b.of]; n >= b.limit {
			e := brig.Errorf(brig.RateLimited, b.format, n).WithHint("close one that is not used any more, or ask the operator for more")
			e.RetryAfter = retryStreams
			return nil, e
		}
	}
	for _, b := range bounds {
		s.byOwner[b.of]++
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, b := range bounds {
			if s.byOwner[b.of]--; s.byOwner[b.of] == 0 {
				delete(s.byOwner, b.of)
			}
		}
	}), nil
}

// streamConn is a counted connection. Close releases it.
type streamConn struct {
	activeConn
	release func()
}

var _ net.Conn = streamConn{}

// Close implements net.Conn.
func (c streamConn) Close() error {
	defer c.release()
	return c.activeConn.Close()
}

type streamReader struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (r streamReader) Close() error {
	defer r.release()
	return r.ReadCloser.Close()
}
