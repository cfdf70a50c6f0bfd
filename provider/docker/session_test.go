package docker

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
)

// TestStuckEngineDoesNotBlockCallers verifies that a call does not wait longer than its context for a stuck
// engine, even if other calls are waiting as well.
func TestStuckEngineDoesNotBlockCallers(t *testing.T) {
	release, requests := make(chan struct{}), make(chan struct{}, 10)
	h := hostile{suffix: "/exec", write: func(io.Writer) error {
		requests <- struct{}{}
		<-release
		return errors.New("it was stuck")
	}}
	i := newInstance(h.start(t), "x", order{Container: "made"})
	i.Guest = guest.Guest{Dial: i.dial}
	long := make(chan error, 1)
	t.Cleanup(func() { // runs before the engine closes, because Close waits for open requests
		close(release)
		if err := <-long; err == nil {
			t.Error("the call has a session")
		}
	})
	go func() {
		_, err := i.dial(t.Context())
		long <- err
	}()
	<-requests
	for name, call := range map[string]func(context.Context) error{
		"dial": func(ctx context.Context) error { _, err := i.dial(ctx); return err },
		"volume": func(ctx context.Context) error {
			i.p.populating <- struct{}{} // simulates another call that fills the volume
			defer func() { <-i.p.populating }()
			return i.p.populateVolume(ctx, "image")
		},
		"exec": func(ctx context.Context) error {
			_, err := i.Guest.Exec(ctx, "y", brig.Command{Shell: "x"}, brig.IO{})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- call(ctx) }()
		select {
		case err := <-done:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s still waits", name)
		}
	}
}
