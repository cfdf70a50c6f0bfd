package engine

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// During a commit, a sandbox must send its files at a minimum rate: at least packMinBytes bytes
// within packStall, and all files within packTime. The commit holds memory and staged bytes that
// other commits wait for. The time of the server itself, for example for a store, does not count.
const (
	packStall    = 5 * time.Minute
	packMinBytes = 32 << 20
	packTime     = time.Hour
	// packEntry is the number of bytes that an entry counts in addition to its content.
	packEntry = 16 << 10
)

// pace measures how fast a sandbox sends its files. One goroutine uses it.
type pace struct {
	end   context.CancelCauseFunc
	total time.Duration // remaining time for all files
	stall time.Duration // remaining time for the next packMinBytes bytes
	n     int64         // bytes since the last packMinBytes

	mu    sync.Mutex // guards the fields below
	timer *time.Timer
	since time.Time
}

// newPace returns a context that ends when the sandbox is too slow. The caller
// calls stop.
func newPace(ctx context.Context) (_ context.Context, p *pace, stop func()) {
	ctx, end := context.WithCancelCause(ctx)
	p = &pace{end: end, total: packTime, stall: packStall}
	p.wait()
	return ctx, p, func() {
		p.pause(0)
		end(nil)
	}
}

// wait begins a wait for the sandbox.
func (p *pace) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Now()
	p.timer = time.AfterFunc(min(p.total, p.stall), func() {
		p.end(brig.Errorf(brig.Timeout, "the sandbox sends the files of its workspace too slowly").
			WithHint("commit when its programs do less, or keep fewer files in the workspace"))
	})
}

// pause ends a wait, in which the sandbox has sent n bytes.
func (p *pace) pause(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		return
	}
	p.timer.Stop()
	p.timer = nil
	took := time.Since(p.since)
	p.total, p.stall = max(p.total-took, 0), max(p.stall-took, 0)
	if p.n += n; p.n >= packMinBytes {
		p.n, p.stall = 0, packStall
	}
}

// measure returns a function that passes nodes of the sandbox to add. It also reads the content
// that add did not read, because the sandbox sends all of it.
func (p *pace) measure(add func(brig.Node, io.Reader) error) func(brig.Node, io.Reader) error {
	return func(n brig.Node, r io.Reader) error {
		p.pause(packEntry)
		defer p.wait()
		if r == nil {
			return add(n, nil)
		}
		r = &pacedReader{r, p}
		if err := add(n, r); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, r)
		return err
	}
}

// pacedReader is the content of a file of the sandbox.
type pacedReader struct {
	io.Reader
	p *pace
}

// Read implements io.Reader.
func (r *pacedReader) Read(b []byte) (n int, err error) {
	r.p.wait()
	defer func() { r.p.pause(int64(n)) }()
	return r.Reader.Read(b)
}
