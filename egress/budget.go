package egress

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// DefaultMemory is the server memory that the connections and requests of one
// sandbox may use.
const DefaultMemory = 16 << 20

// The memory costs of objects in bytes, as TestMemoryOfInspectedRequestsIsLimited measures
// them. Each is charged before it is allocated.
const (
	// headCost is the memory of a request's header from its first byte until it
	// is complete: as received, parsed, and sent on.
	headCost = 2 * maxHeader
	// requestCost is the memory of a request and its response: goroutines,
	// buffers, and a connection to the host.
	requestCost = 112 << 10
	// sendCost is the memory that net/http uses for a body sent to an HTTP/2
	// host that accepts frames of any size. A shorter body uses less.
	sendCost = 512 << 10
	// inspectCost is the memory of a connection whose requests are inspected.
	inspectCost = 64 << 10
	// searchCost is the memory of a response that is searched for values of
	// secrets: the held part, and the decoded text in several views.
	searchCost = holdLength + 5*holdReadSize
	// swapCost is the memory of a body into which values are inserted: up to
	// maxBufferedBody of the original, and the output of a piece.
	swapCost = maxBufferedBody + 2*swapReadSize + 6*int64(brig.MaxBrokered)
	// helloCost is the memory of a client hello, or of the first request of a
	// connection, while it is inspected.
	helloCost = 2 * maxSniff
)

// The windows of HTTP/2: the bytes that are read ahead of the guest's requests,
// and of the host's responses while memory is available.
const (
	requestWindow           = 64 << 10
	requestsWindow          = 256 << 10
	maxHTTP2Frame           = 16 << 10
	maxConcurrentHandshakes = 32
	maxConcurrentLookups    = 32
)

// budgetWait is how long an operation may wait for other operations to release memory.
const budgetWait = 5 * time.Second

// reasonNoMemory is the reason why an operation of the sandbox is refused if
// its memory is used up.
const reasonNoMemory = "the sandbox's connections have no memory left"

// budget is the server memory that one sandbox may use.
type budget struct {
	limit int64

	mu    sync.Mutex // guards the fields below
	used  int64
	freed chan struct{} // closed when memory is released; nil: no waiter
}

func newBudget(size int64) *budget { return &budget{limit: size} }

// reserve reserves n bytes if at least spare bytes then remain free, and reports whether it did.
func (b *budget) reserve(n, spare int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit-spare {
		return false
	}
	b.used += n
	return true
}

// release releases n bytes.
func (b *budget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// wait is like reserve, but waits for other operations to release memory.
func (b *budget) wait(ctx context.Context, n, spare int64) bool {
	ctx, cancel := context.WithTimeout(ctx, budgetWait)
	defer cancel()
	for {
		b.mu.Lock()
		if b.used+n <= b.limit-spare {
			b.used += n
			b.mu.Unlock()
			return true
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

// reservedForConnections returns the memory that requests leave free for new connections, each of
// which needs little.
func (b *budget) reservedForConnections() int64 { return b.limit / 8 }

// reservedForRequests returns the memory that inspected connections leave free for requests.
func (b *budget) reservedForRequests() int64 { return b.limit / 4 }

// reserveWindow reserves the read-ahead of a host's responses in HTTP/2: a large one
// while little memory is used.
func (b *budget) reserveWindow() (reserved int64, ok bool) {
	for _, w := range []struct{ size, spare int64 }{{2 << 20, b.limit * 6 / 8}, {256 << 10, b.limit * 4 / 8}, {64 << 10, b.reservedForRequests()}} {
		if b.reserve(w.size, w.spare) {
			return w.size, true
		}
	}
	return 0, false
}

// requestTracker counts the requests of a connection whose headers are being
// received, and those that are being served. A header is charged at the maximum
// size, until the server calls the handler and the size is known.
type requestTracker struct {
	b       *budget
	mu      sync.Mutex // guards the fields below
	coming  int
	serving int
	ended   bool
}

// begin charges a header whose first bytes have arrived. If no request is being
// served, the headers charged before led to no request, and begin releases
// them: the server reads on only when it has processed all previous ones.
func (h *requestTracker) begin(ctx context.Context) bool {
	h.mu.Lock()
	if h.serving == 0 {
		h.b.release(int64(h.coming) * headCost)
		h.coming = 0
	}
	h.mu.Unlock()
	if !h.b.wait(ctx, headCost, h.b.reservedForConnections()) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		h.b.release(headCost)
		return false
	}
	h.coming++
	return true
}

// beginServing replaces the charge of a header by the charge of its request. If it refuses the request,
// nothing remains charged.
func (h *requestTracker) beginServing(cost int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.coming > 0 {
		h.coming--
		h.b.release(headCost)
	}
	if !h.b.reserve(cost, h.b.reservedForConnections()) {
		return false
	}
	h.serving++
	return true
}

// endServing releases the memory that a request was charged for.
func (h *requestTracker) endServing(cost int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serving--
	h.b.release(cost)
}

// end releases the remaining memory when the connection has ended.
func (h *requestTracker) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.b.release(int64(h.coming) * headCost)
	h.coming, h.ended = 0, true
}

// costOfRequest returns the memory to reserve for a request. framed means that
// the host may speak HTTP/2.
func costOfRequest(r *http.Request, framed, searched bool) int64 {
	n := int64(requestCost)
	for name, values := range r.Header {
		for _, v := range values {
			n += 2 * int64(len(name)+len(v)+64)
		}
	}
	n += 2 * int64(len(r.RequestURI))
	if r.Body != nil && r.Body != http.NoBody {
		n += requestWindow
		if framed {
			length := r.ContentLength
			if length < 0 {
				length = sendCost
			}
			n += min(length, sendCost)
		}
	}
	if searched {
		n += searchCost
		if r.Header["Upgrade"] != nil {
			n += 2 * maxHeld // WebSocket frames
		}
	}
	return n
}
