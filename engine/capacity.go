package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/brig-run/brig"
)

// Capacity bounds how many machines are made at once. More than the processors
// can make only makes all of them late.
type Capacity struct {
	// Making is how many are made at once. Default 2 for each processor.
	Making int
	// Waiting is how many callers may wait for that. Default 1000.
	Waiting int
	// Wait is how long one may wait. Default 30 s.
	Wait time.Duration
	// Room, when set, says why there is no room for one more machine.
	Room func() error
}

type capacity struct {
	Capacity
	making, waiting chan struct{}
}

func newCapacity(o Capacity) *capacity {
	if o.Making == 0 {
		o.Making = 2 * runtime.NumCPU()
	}
	if o.Waiting == 0 {
		o.Waiting = 1000
	}
	if o.Wait == 0 {
		o.Wait = 30 * time.Second
	}
	return &capacity{Capacity: o, making: make(chan struct{}, o.Making), waiting: make(chan struct{}, o.Waiting)}
}

// enter waits until a machine may be made. What it returns is called when it
// has been.
func (c *capacity) enter(ctx context.Context) (leave func(), err error) {
	if err := c.room(); err != nil {
		return nil, err
	}
	leave = func() { <-c.making }
	select {
	case c.making <- struct{}{}:
		return leave, nil
	default:
	}
	select {
	case c.waiting <- struct{}{}:
		defer func() { <-c.waiting }()
	default:
		return nil, brig.Errorf(brig.RateLimited, "too many sandboxes are being made").
			WithHint("try again in a moment")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Wait, brig.Errorf(brig.Unavailable, "no sandbox could be made in time").
		WithHint("try again later, or give the server more processors"))
	defer cancel()
	select {
	case c.making <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// room says why there is no room for one more machine, if there is none.
func (c *capacity) room() error {
	if c.Room == nil {
		return nil
	}
	return c.Room()
}

// busy says that callers wait: what is done ahead of time must not compete.
func (c *capacity) busy() bool { return len(c.waiting) > 0 }
