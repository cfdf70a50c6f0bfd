package engine_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/brig-run/brig"
)

// rehearsed are the machines whose shell has done nothing so far.
func rehearsed(p *tricky) []brig.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.shells)
}

// What is made ahead for sandboxes that stay has had a command, before it is
// anybody's; what is made ahead for one-shots has not.
func TestRehearsal(t *testing.T) {
	bubble(t, warm(1), func(t *testing.T, h *house, p *tricky) {
		ctx := as(t, brig.Operator)
		mustRun(t, h, python("ann"), brig.PoolHit)
		settled()
		if got := rehearsed(p); len(got) > 0 {
			t.Errorf("for one-shots %v had a command", got)
		}
		for _, name := range []string{"first", "second"} {
			s, err := h.Create(ctx, brig.Spec{Name: name})
			if err != nil || s.Pool != brig.PoolHit {
				t.Fatalf("created %+v, %v", s, err)
			}
			had := slices.Contains(rehearsed(p), s.ID)
			if want := name == "second"; had != want {
				t.Errorf("%s: that it had a command before is %t, want %t", name, had, want)
			}
			settled()
		}
		before := len(rehearsed(p))
		mustRun(t, h, python("ann"), brig.PoolHit)
		settled()
		if got := len(rehearsed(p)); got != before {
			t.Errorf("after a one-shot again: %d had a command, want %d", got, before)
		}
		for _, name := range []string{"first", "second"} {
			if err := h.Remove(ctx, name); err != nil {
				t.Error(err)
			}
		}
		h.Close()
		p.nothingLeft(t)
	})
}

// A machine whose shell cannot be had is as good as any.
func TestRehearsalNeverFails(t *testing.T) {
	bubble(t, warm(1), func(t *testing.T, h *house, p *tricky) {
		ctx := as(t, brig.Operator)
		p.mu.Lock()
		p.exec = func(brig.Command) error { return errors.New("no shell") }
		p.mu.Unlock()
		for _, name := range []string{"first", "second"} {
			if s, err := h.Create(ctx, brig.Spec{Name: name}); err != nil || s.Pool != brig.PoolHit {
				t.Fatalf("created %+v, %v", s, err)
			}
			settled()
		}
		if s := h.shelf(t); s.Ready < 1 || s.Failed != 0 || len(rehearsed(p)) == 0 {
			t.Errorf("what waits: %+v, after %d rehearsals", s, len(rehearsed(p)))
		}
	})
}
