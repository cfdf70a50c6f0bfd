package envd

import (
	"context"
	"sync"
	"time"
)

// keepaliveSender sends events one at a time, and a keepalive after an interval
// without events.
type keepaliveSender struct {
	ctx    context.Context // ends when the client disconnects
	cancel context.CancelFunc
	every  time.Duration
	done   chan struct{}

	mu    sync.Mutex // guards the fields below and serializes sends
	timer *time.Timer
	err   error
}

func newKeepaliveSender(ctx context.Context, every time.Duration, alive func() error) *keepaliveSender {
	p := &keepaliveSender{every: every, done: make(chan struct{}), timer: time.NewTimer(every)}
	p.ctx, p.cancel = context.WithCancel(ctx)
	go func() {
		defer close(p.done)
		for {
			select {
			case <-p.ctx.Done():
				return
			case <-p.timer.C:
				_ = p.do(alive) // on an error, do cancels p.ctx
			}
		}
	}()
	return p
}

// do sends one event. After an error all later calls fail, because the client
// has disconnected.
func (p *keepaliveSender) do(send func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = send()
	}
	if p.err != nil {
		p.cancel()
		return p.err
	}
	p.timer.Reset(p.every)
	return nil
}

// stop waits for the last send and returns its error.
func (p *keepaliveSender) stop() error {
	p.cancel()
	<-p.done
	p.timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}
