package engine_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// newBootedFixture returns a fixture with a template that has booted once, and a counter of the
// restores.
func newBootedFixture(t *testing.T) (*fixture, *atomic.Int32) {
	t.Helper()
	var restores atomic.Int32
	h := newFixture(t, func(o *engine.Options) {
		o.Templates = []brig.Template{{
			Name: "web", Image: brig.HostImage, Env: map[string]string{"A": "1"}, BootOnce: true,
			Start: argv("sleep", "60"), Ready: argv("echo", "yes"), ReadyTimeout: 10 * time.Minute,
		}}
	})
	h.provider.OnRestore = func(brig.ID) error { restores.Add(1); return nil }
	if err := h.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.awaitBoot(t)
	return h, &restores
}

// awaitBoot waits until a template has booted and its instance has ended.
func (h *fixture) awaitBoot(t *testing.T) {
	t.Helper()
	await(t, "the template does not boot", func() bool { return h.provider.Saves() == 1 && len(h.provider.Machines()) == 0 })
}

func isCopy(s *brig.Sandbox) bool {
	return strings.Contains(strings.Join(s.Notes, "\n"), "a copy of the sandbox that booted")
}

// Sandboxes of a template with BootOnce are copies, which contain the process of the start
// command. Sandboxes with other limits boot separately.
func TestTemplateBootsOnce(t *testing.T) {
	h, restores := newBootedFixture(t)
	ctx := withRole(t, brig.Member)
	if machines := h.provider.Machines(); len(machines) > 0 {
		t.Errorf("the instance that booted is left: %v", machines)
	}
	create := func(spec brig.Spec) *brig.Sandbox {
		t.Helper()
		spec.Template = "web"
		s, err := h.Create(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		list, err := h.Processes(s.Spec.Name).List(ctx)
		if err != nil || len(list) != 1 || list[0].Spec.Tag != brig.StartTag || list[0].Result != nil {
			t.Fatalf("the processes are %+v, %v", list, err)
		}
		if remaining := time.Until(s.Expires); remaining > time.Hour || remaining < 58*time.Minute {
			t.Errorf("the lease is %v", remaining)
		}
		return s
	}
	one, two := create(brig.Spec{TTL: time.Hour}), create(brig.Spec{TTL: time.Hour, Env: map[string]string{"A": "2"}})
	if !isCopy(one) || !isCopy(two) || restores.Load() != 2 || one.Spec.Env["A"] != "1" || two.Spec.Env["A"] != "2" {
		t.Errorf("%d copies: %+v, %+v", restores.Load(), one, two)
	}
	if s := create(brig.Spec{TTL: time.Hour, Limits: brig.Limits{Memory: 2 * brig.GiB}}); isCopy(s) || restores.Load() != 2 {
		t.Errorf("with other limits: %+v", s)
	}
	if err := h.Remove(ctx, one.Spec.Name); err != nil {
		t.Error(err)
	}
	if n := h.provider.Saves(); n != 1 {
		t.Errorf("there are %d saves, want that of the template", n)
	}
}

// A template's save that cannot be restored is replaced, and does not cause failed
// creations.
func TestBootedTemplateIsLost(t *testing.T) {
	h, restores := newBootedFixture(t)
	ctx := withRole(t, brig.Member)
	h.provider.OnRestore = func(brig.ID) error { return errors.New("damaged") }
	s, err := h.Create(ctx, brig.Spec{Template: "web"})
	if err != nil || isCopy(s) {
		t.Fatalf("%+v, %v", s, err)
	}
	h.provider.OnRestore = func(brig.ID) error { restores.Add(1); return nil }
	await(t, "the template does not boot again", func() bool {
		s, err := h.Create(ctx, brig.Spec{Template: "web"})
		if err != nil {
			t.Fatal(err)
		}
		return isCopy(s)
	})
}

// The processes of a copy count against the quota of its tenant.
func TestBootedProcessesCount(t *testing.T) {
	h, _ := newBootedFixture(t)
	setQuota(t, h.store, brig.Quota{Executions: 1}, brig.Ceilings{})
	ctx := withRole(t, brig.Member)
	if _, err := h.Create(ctx, brig.Spec{Name: "one", Template: "web"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Create(ctx, brig.Spec{Name: "two", Template: "web"}); err == nil {
		t.Error("there is a second process")
	} else {
		wantQuota(t, "a second process", err, "executions")
	}
	if machines := h.provider.Machines(); len(machines) != 1 {
		t.Errorf("there are the instances %v", machines)
	}
}

// A template that does not boot leaves no save and no instance, and the creation of its sandboxes
// fails as without BootOnce.
func TestTemplateDoesNotBoot(t *testing.T) {
	h := newTemplateFixture(t, nil, brig.Template{
		Name: "web", Image: brig.HostImage, BootOnce: true, Start: argv("sleep", "60"),
		Ready: argv("exit", "3"), ReadyTimeout: 100 * time.Millisecond, ReadyInterval: time.Millisecond,
	})
	ctx := withRole(t, brig.Member)
	var booted atomic.Bool
	h.provider.OnSave = func(brig.SaveID) error { booted.Store(true); return nil }
	if err := h.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := h.Create(ctx, brig.Spec{Template: "web"})
	if e := brig.AsError(err); e == nil || e.Kind != brig.CreationFailed {
		t.Errorf("%v", err)
	}
	await(t, "the instance is left", func() bool { return len(h.provider.Machines()) == 0 })
	if booted.Load() || h.provider.Saves() != 0 {
		t.Error("it was saved")
	}
}

// A start command that ends while a template boots is not counted as an execution.
func TestBootIsNotCountedAsExecution(t *testing.T) {
	s := &recordingObserver{refused: map[string]int{}, made: map[brig.CreationPurpose]int{}}
	h := newFixture(t, func(o *engine.Options) {
		o.Observer = s
		o.Templates = []brig.Template{{Name: "web", Image: brig.HostImage, BootOnce: true, Start: argv("exit", "0"), Ready: argv("sleep", "0.3")}}
	})
	if err := h.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.awaitBoot(t)
	if s.mu.Lock(); len(s.ran) > 0 {
		t.Errorf("it is counted: %+v", s.ran)
	}
	s.mu.Unlock()
}
