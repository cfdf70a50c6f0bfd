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
	soon bool
	fail *error
}

// slowness is longer than what runs beside such a write.
const slowness = time.Minute

func (s slowStore) Soon() brig.Store { s.soon = true; return s }

func (s slowStore) wait() error {
	if !s.soon {
		return nil
	}
	time.Sleep(slowness)
	return *s.fail
}

func (s slowStore) Put(ctx context.Context, r *brig.Record, events ...brig.Event) error {
	return errors.Join(s.wait(), s.Store.Put(ctx, r, events...))
}

func (s slowStore) Append(ctx context.Context, events ...brig.Event) error {
	return errors.Join(s.wait(), s.Store.Append(ctx, events...))
}

// told notes when something came out of a sandbox.
type told struct {
	bytes.Buffer
	at time.Time
}

func (w *told) Write(p []byte) (int, error) {
	if w.at.IsZero() {
		w.at = time.Now()
	}
	return w.Buffer.Write(p)
}

// Programs run while their intent is written; nothing comes out of them before
// it is, and nothing at all when it cannot be.
func TestNothingComesOutBeforeTheIntent(t *testing.T) {
	for what, call := range map[string]func(t *testing.T, h *house, out *told) error{
		"run": func(t *testing.T, h *house, out *told) error {
			o, err := h.Run(as(t, brig.Operator), python("ann"), brig.IO{Stdout: out})
			if err == nil && o.Pool != brig.PoolHit {
				t.Errorf("it was a %q", o.Pool)
			}
			return err
		},
		"code": func(t *testing.T, h *house, out *told) error {
			_, err := h.RunCode(as(t, brig.Operator), "box", brig.Code{Source: "echo hi"}, func(ev brig.CodeEvent) error {
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
				o := warm(2)
				o.Store = slowStore{Store: mem.New(), fail: &fail}
				bubble(t, engine.Options{Pool: o.Pool, Store: o.Store}, func(t *testing.T, h *house, p *tricky) {
					if _, err := h.Create(as(t, brig.Operator), brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
						t.Fatal(err)
					}
					settled()
					if fails {
						fail = errors.New("the disk is full")
					}
					begin, out := time.Now(), &told{}
					err := call(t, h, out)
					if (err != nil) != fails {
						t.Errorf("the call's error is %v", err)
					}
					if fails && out.Len() > 0 {
						t.Errorf("%q came out", out)
					}
					if early := out.at.Sub(begin); !fails && early < slowness {
						t.Errorf("something came out after %v", early)
					}
					h.Close()
				})
			})
		}
	}
}

// wholeStore notes how many events each write through Soon brought.
type wholeStore struct {
	brig.Store
	soon  bool
	wrote *[]int
	fail  *error
}

func (s wholeStore) Soon() brig.Store { s.soon = true; return s }

func (s wholeStore) Append(ctx context.Context, events ...brig.Event) error {
	if s.soon {
		if *s.fail != nil {
			return *s.fail
		}
		*s.wrote = append(*s.wrote, len(events))
	}
	return s.Store.Append(ctx, events...)
}

// Of a cell that nobody listens to and that is over at once, the intent is
// written with the outcome; of one that takes longer while it runs.
func TestIntentWithTheOutcome(t *testing.T) {
	var wrote []int
	var fail error
	store := mem.New()
	bubble(t, engine.Options{Store: wholeStore{Store: store, wrote: &wrote, fail: &fail}}, func(t *testing.T, h *house, p *tricky) {
		ctx := as(t, brig.Operator)
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
