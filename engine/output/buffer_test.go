package output

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// receivedOutput is the output that a follower received.
type receivedOutput struct {
	out   []byte
	gap   bool // output is missing after the first received byte
	first int64
	end   *brig.Result
}

func (h *receivedOutput) record(ev brig.ProcessEvent) error {
	if ev.End != nil {
		h.end = ev.End
		return nil
	}
	if len(h.out) == 0 {
		h.first = ev.Offset
	}
	h.gap = h.gap || ev.Offset != h.first+int64(len(h.out))
	h.out = append(h.out, ev.Output...)
	return nil
}

// A follower that attaches at any time receives a contiguous part of the output, up
// to the end.
func TestFollowersReceiveContiguousOutput(t *testing.T) {
	bytesOf := rand.NewChaCha8([32]byte{1, 2})
	rnd := rand.New(bytesOf)
	for range 4 {
		tp := NewRelays(TenantBudget, ServerBudget).NewBuffer("acme")
		var all []byte
		var followers sync.WaitGroup
		hs := make([]*receivedOutput, 4)
		from := make([]int64, len(hs))
		for i := range 200 {
			if k := i / 60; i%60 == 0 {
				h := &receivedOutput{}
				hs[k], from[k] = h, int64(len(all))
				followers.Go(func() {
					if err := tp.Follow(t.Context(), from[k], h.record); err != nil {
						t.Error(err)
					}
				})
			}
			p := make([]byte, 1+rnd.IntN(50_000))
			_, _ = bytesOf.Read(p)
			tp.Write(brig.From(1+rnd.IntN(2)), p)
			all = append(all, p...)
		}
		tp.Finish(&brig.Result{ExitCode: 7}, nil)
		followers.Wait()
		for k, h := range hs {
			if h.gap || h.end == nil || h.end.ExitCode != 7 || !bytes.Equal(h.out, all[h.first:]) || h.first < from[k] {
				t.Fatalf("follower %d from %d: from %d on %d of %d bytes, a gap: %v, end %+v", k, from[k], h.first, len(h.out), len(all), h.gap, h.end)
			}
		}
		// A late follower receives the newest output, and the end.
		late := &receivedOutput{}
		if err := tp.Follow(t.Context(), 0, late.record); err != nil || late.end == nil || len(late.out) > bufferSize || !bytes.HasSuffix(all, late.out) || len(late.out) < bufferSize-64<<10 {
			t.Fatalf("late: %d bytes, %+v, %v", len(late.out), late.end, err)
		}
	}
}

// A process waits for its slowest follower, but not for followers that have
// detached.
func TestProcessWaitsForSlowestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := NewRelays(TenantBudget, ServerBudget).NewBuffer("acme")
		ctx, cancel := context.WithCancel(t.Context())
		stuck := make(chan struct{})
		followErr := make(chan error, 1)
		go func() {
			followErr <- tp.Follow(ctx, 0, func(brig.ProcessEvent) error { <-stuck; return nil })
		}()
		synctest.Wait()
		wrote := make(chan int, 100)
		go func() {
			for i := range 100 {
				tp.Write(brig.FromStdout, make([]byte, 64<<10))
				wrote <- i
			}
			close(wrote)
		}()
		time.Sleep(time.Hour)
		if n := len(wrote); n == 0 || n > bufferSize/(64<<10)+1 {
			t.Errorf("%d writes went by somebody who had not heard the first", n)
		}
		cancel()
		close(stuck)
		if err := <-followErr; !errors.Is(err, context.Canceled) {
			t.Errorf("follow = %v", err)
		}
		synctest.Wait()
		if n := len(wrote); n != 100 {
			t.Errorf("%d of 100 writes were done when nobody was attached", n)
		}
	})
}

// A follower that attaches soon after the start misses no output. A process without
// followers waits only for a limited time.
func TestProcessWaitsForFirstFollower(t *testing.T) {
	const writes, each = 20, 64 << 10 // five times the buffer's size
	for _, c := range []struct {
		after time.Duration
		all   bool
	}{{firstFollowerWait - time.Millisecond, true}, {firstFollowerWait + time.Millisecond, false}} {
		synctest.Test(t, func(t *testing.T) {
			tp := NewRelays(TenantBudget, ServerBudget).NewBuffer("acme").HoldForFollower()
			began, ended := time.Now(), time.Duration(0)
			go func() {
				for range writes {
					tp.Write(brig.FromStdout, make([]byte, each))
				}
				ended = time.Since(began)
				tp.Finish(&brig.Result{}, nil)
			}()
			time.Sleep(c.after)
			h := &receivedOutput{}
			if err := tp.Follow(t.Context(), 0, h.record); err != nil || h.end == nil {
				t.Fatal(err, h.end)
			}
			if all := len(h.out) == writes*each; all != c.all {
				t.Errorf("who attached after %v heard %d of %d bytes", c.after, len(h.out), writes*each)
			}
			if ended > firstFollowerWait {
				t.Errorf("the process waited for %v", ended)
			}
		})
	}
}

// A follower receives an error if the result of the process is unknown.
func TestFollowerIsNotifiedOfUnknownEnd(t *testing.T) {
	tp := NewRelays(TenantBudget, ServerBudget).NewBuffer("acme")
	tp.Write(brig.FromStderr, []byte("x"))
	cause := errors.New("the machine died")
	tp.Finish(nil, cause)
	tp.Finish(&brig.Result{}, nil) // has no effect after the first call
	var h receivedOutput
	if err := tp.Follow(t.Context(), 0, h.record); !errors.Is(err, cause) || string(h.out) != "x" || h.end != nil {
		t.Errorf("follow = %v after %q and %+v", err, h.out, h.end)
	}
	no := errors.New("enough")
	if err := tp.Follow(t.Context(), 0, func(brig.ProcessEvent) error { return no }); !errors.Is(err, no) {
		t.Errorf("follow = %v", err)
	}
}
