package gvisor

import (
	"context"
	"fmt"
	"time"
)

// Begin implements brig.Instance.
func (i *instance) Begin(ctx context.Context, linger bool) error {
	return i.l.tell(ctx, request{Op: "begin", Linger: linger})
}

// overAgain is how long it takes until a shim that could not be asked is asked
// again.
const overAgain = time.Second

// Over implements brig.Instance.
func (i *instance) Over(ctx context.Context) error {
	for {
		err := i.l.tell(ctx, request{Op: "over"})
		if err == nil {
			return nil
		}
		select {
		case <-i.done:
			return fmt.Errorf("wait for the main program of %s: %w", i.id, err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(overAgain):
		}
	}
}
