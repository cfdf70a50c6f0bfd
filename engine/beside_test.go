package engine_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/store/mem"
)

// slowStore is a store whose writes through Soon take a while and may fail.
type slowStore struct {
	brig.Store
	lazy bool
	fail *error
}

// storeDelay is the duration of a write. It is longer than any operation that runs
// in parallel with a write.
const storeDelay = time.Minute

func (s slowStore) Soon() brig.Store { s.lazy = true; return s }

func (s slowStore) wait() error {
	if !s.lazy {
		return nil
	}
	time.Sleep(storeDelay)
	return *s.fail
}

func (s slowStore) Put(ctx context.Context, r *brig.Record, events ...brig.Event) error {
	return errors.Join(s.wait(), s.Store.Put(ctx, r, events...))
}

func (s slowStore) Append(ctx context.Context, events ...brig.Event) error {
	return errors.Join(s.wait(), s.Store.Append(ctx, events...))
}

// timedWriter is a writer that records the time of the sandbox's first output.
type timedWriter struct {
	bytes.Buffer
	at time.Time
}

func (w *timedWriter) Write(p []byte) (int, error) {
	if w.at.IsZero() {
		w.at = time.Now()
	}
	return w.Buffer.Write(p)
}

// Programs run while the store writes their intent. No output reaches the caller
// before the intent is written. If the write fails, no output reaches the caller.
func TestOutputWaitsForIntentRecord(t *testing.T) {
	for what, call := range map[string]func(t *testing.T, h *fixture, out *timedWriter) error{
		"run": func(t *testing.T, h *fixture, out *timedWriter) error {
			o, err := h.Run(withRole(t, brig.Operator), newPythonProgram("ann"), brig.IO{Stdout: out})
			if err == nil && o.Pool != brig.PoolHit {
				t.Errorf("it was a %q", o.Pool)
			}
			return err
		},
		"code": func(t *testing.T, h *fixture, out *timedWriter) error {
			_, err := h.RunCode(withRole(t, brig.Operator), "box", brig.Code{Source: "echo hi"}, func(ev brig.CodeEvent) error {
				_, err := out.Write(ev.Stdout)
				return err
			})
			return err
		},
	} {
		for _, fails := range []bool{false, true} {
			name := what
			if fails {
				name += ", and it is not"
			}
			t.Run(name, func(t *testing.T) {
				var fail error
				o := newPoolOptions(2)
				o.Store = slowStore{Store: mem.New(), fail: &fail}
				withFakeClock(t, engine.Options{Pool: o.Pool, Store: o.Store}, func(t *testing.T, h *fixture, p *hookedProvider) {
					if _, err := h.Create(withRole(t, brig.Operator), brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
						t.Fatal(err)
					}
					waitForRefill()
					if fails {
						fail = errors.New("the disk is full")
					}
					begin, out := time.Now(), &timedWriter{}
					err := call(t, h, out)
					if (err != nil) != fails {
						t.Errorf("the call's error is %v", err)
					}
					if fails && out.Len() > 0 {
						t.Errorf("%q came out", out)
					}
					if early := out.at.Sub(begin); !fails && early < storeDelay {
						t.Errorf("something came out after %v", early)
					}
					h.Close()
				})
			})
		}
	}
}

// countingStore records the number of events in each write through Soon.
type countingStore struct {
	brig.Store
	lazy  bool
	wrote *[]int
	fail  *error
}

func (s countingStore) Soon() brig.Store { s.lazy = true; return s }

func (s countingStore) Append(ctx context.Context, events ...brig.Event) error {
	if s.lazy {
		if *s.fail != nil {
			return *s.fail
		}
		*s.wrote = append(*s.wrote, len(events))
	}
	return s.Store.Append(ctx, events...)
}

// If a cell has no listener and ends immediately, its intent is written together
// with its outcome. If the cell takes longer, its intent is written while it runs.
func TestIntentIsBatchedWithOutcome(t *testing.T) {
	var wrote []int
	var fail error
	store := mem.New()
	withFakeClock(t, engine.Options{Store: countingStore{Store: store, wrote: &wrote, fail: &fail}}, func(t *testing.T, h *fixture, p *hookedProvider) {
		ctx := withRole(t, brig.Operator)
		if _, err := h.Create(ctx, brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			source string
			wrote  []int
		}{{"echo hi", []int{2}}, {"sleep 1", []int{1, 1}}} {
			wrote = nil
			begun := time.Now()
			if _, err := h.RunCode(ctx, "box", brig.Code{Source: c.source}, nil); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(wrote, c.wrote) {
				t.Errorf("%s: writes of %d events, not %d", c.source, wrote, c.wrote)
			}
			events, err := store.Events(ctx, 2)
			if err != nil || len(events) < 2 || events[0].Phase != brig.Finish || events[1].Phase != brig.Intent || !events[1].At.Equal(begun) {
				t.Errorf("%s: on record are %+v, %v", c.source, events, err)
			}
		}
		fail = errors.New("the disk is full")
		for _, source := range []string{"echo hi", "sleep 1"} {
			if _, err := h.RunCode(ctx, "box", brig.Code{Source: source}, nil); err == nil {
				t.Errorf("%s is acknowledged, and not on record", source)
			}
		}
		h.Close()
	})
}
