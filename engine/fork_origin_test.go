package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// Forks of a paused sandbox do not wait for each other, and a resume waits for all of them. Forks that
// arrive later than a second after the first wait, so that a resume has its turn.
func TestPausedSandboxIsForkedConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		ctx := withRole(t, brig.Member)
		h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
		if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		proceed := make(chan struct{})
		var restoring atomic.Int32
		h.provider.OnRestore = func(brig.ID) error {
			restoring.Add(1)
			<-proceed
			return nil
		}
		results := make(chan error, 5)
		fork := func(ctx context.Context) {
			go func() {
				copies, err := h.Fork(ctx, "one", brig.ForkSpec{})
				for _, c := range copies {
					_ = h.Remove(withRole(t, brig.Member), c.Spec.Name) // its goroutines have the fake clock
				}
				results <- err
			}()
			synctest.Wait()
		}
		gone, disconnect := context.WithCancel(ctx)
		fork(gone) // leads, and its caller disconnects
		fork(ctx)
		fork(ctx)
		if n := restoring.Load(); n != 3 {
			t.Errorf("%d forks run concurrently, want 3", n)
		}
		time.Sleep(2 * time.Second)
		fork(ctx)
		if n := restoring.Load(); n != 3 {
			t.Errorf("%d forks run, one of which has come late", n)
		}
		resumed := make(chan error, 1)
		go func() {
			_, err := h.Resume(ctx, "one")
			resumed <- err
		}()
		synctest.Wait()
		disconnect()
		synctest.Wait()
		select {
		case err := <-resumed:
			t.Fatalf("the resume did not wait: %v", err)
		default:
		}
		close(proceed)
		failed := 0
		for range 4 {
			if err := <-results; err != nil {
				failed++
			}
		}
		if err := <-resumed; err != nil || failed > 1 {
			t.Errorf("the resume: %v; %d forks failed", err, failed)
		}
		if err := h.Remove(ctx, "one"); err != nil {
			t.Error(err)
		}
	})
}
