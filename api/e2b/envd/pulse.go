package envd

import (
	"context"
	"sync"
	"time"
)

// pulse sends what happens one after the other, and a sign of life when
// nothing has happened for a while.
type pulse struct {
	ctx    context.Context // ends with the client
	cancel context.CancelFunc
	every  time.Duration
	done   chan struct{}

	mu    sync.Mutex // guards the fields below, and what is sent
	timer *time.Timer
	err   error
}

func newPulse(ctx context.Context, every time.Duration, alive func() error) *pulse {
	p := &pulse{every: every, done: make(chan struct{}), timer: time.NewTimer(every)}
	p.ctx, p.cancel = context.WithCancel(ctx)
	go func() {
		defer close(p.done)
		for {
			select {
			case <-p.ctx.Done():
				return
			case <-p.timer.C:
				_ = p.do(alive) // do ends p.ctx
			}
		}
	}()
	return p
}

// do sends something. After an error everything fails, for the client is gone.
func (p *pulse) do(send func() error) error {
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

// stop returns when nothing more is sent, with the error of what could not be.
func (p *pulse) stop() error {
	p.cancel()
	<-p.done
	p.timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}
