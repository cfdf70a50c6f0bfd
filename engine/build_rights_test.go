package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// Callers cannot give a sandbox the rights of a build, and a provider that cannot give them is not
// asked for them.
func TestCallersCannotSetBuildRights(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	if _, err := h.Create(ctx, brig.Spec{BuildRights: true}); brig.KindOf(err) != brig.InvalidArgument || brig.AsError(err).Field != "build_rights" {
		t.Errorf("a caller's sandbox: %v", err)
	}
	if _, err := h.CreateWithRights(ctx, brig.Spec{}); brig.KindOf(err) != brig.Unimplemented {
		t.Errorf("a sandbox of a provider without them: %v", err)
	}
	if machines := h.provider.Machines(); len(machines) > 0 {
		t.Errorf("there are the instances %v", machines)
	}
}

// The memory of a sandbox that builds a template is never saved, because each copy would have the
// rights. Its files can be saved.
func TestBuildMemoryIsNotSaved(t *testing.T) {
	h := newFixture(t, nil)
	h.provider.BuildRights = true
	ctx := withRole(t, brig.Member)
	if _, err := h.CreateWithRights(ctx, brig.Spec{Name: "one", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "it builds a template") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := h.Pause(ctx, "one", brig.PauseOptions{})
	refused("a pause with memory", err)
	_, err = h.Fork(ctx, "one", brig.ForkSpec{Name: "two"})
	refused("a fork", err)
	_, err = h.Fork(ctx, "one", brig.ForkSpec{Name: "two", Paused: true})
	refused("a paused fork", err)
	if s, err := h.Pause(ctx, "one", brig.PauseOptions{FilesOnly: true}); err != nil || !s.Pause.FilesOnly {
		t.Fatalf("a pause with the files only: %+v, %v", s, err)
	}
	if _, err := h.Resume(ctx, "one"); err != nil {
		t.Error(err)
	}
}

// A sandbox that builds a template does not start as a copy of a booted template, because a started
// instance cannot get the rights.
func TestBuildIsNoCopyOfBootedTemplate(t *testing.T) {
	h, restores := newBootedFixture(t)
	h.provider.BuildRights = true
	ctx := withRole(t, brig.Member)
	s, err := h.CreateWithRights(ctx, brig.Spec{Template: "web"})
	if err != nil {
		t.Fatal(err)
	}
	if restores.Load() != 0 || isCopy(s) {
		t.Errorf("the sandbox is a copy: %+v", s)
	}
	if s, err = h.Create(ctx, brig.Spec{Template: "web"}); err != nil || !isCopy(s) {
		t.Errorf("control: an ordinary sandbox is %+v, %v", s, err)
	}
}

// A sandbox that builds a template is not from the pool, and the examination of pooled instances says
// nothing of it.
func TestBuildIsNotPooled(t *testing.T) {
	withFakeClock(t, newPoolOptions(2), func(t *testing.T, h *fixture, p *hookedProvider) {
		h.provider.BuildRights = true
		ctx := withRole(t, brig.Admin)
		s, err := h.CreateWithRights(ctx, brig.Spec{Name: "build"})
		if err != nil || s.Pool != "" || s.Enforcement != nil {
			t.Fatalf("%+v, %v", s, err)
		}
		if s, err = h.Attest(ctx, "build"); err != nil || len(s.Enforcement) == 0 {
			t.Errorf("an attestation of its own: %+v, %v", s, err)
		}
		if s, err = h.Create(ctx, brig.Spec{Name: "box"}); err != nil || s.Pool != brig.PoolHit || s.Enforcement == nil {
			t.Errorf("control: an ordinary sandbox is %+v, %v", s, err)
		}
	})
}

// The requirements of a sandbox that builds a template are checked in the sandbox itself. The findings
// in other instances of its image are not about its rights.
func TestBuildMeetsRequirements(t *testing.T) {
	h := newFixture(t, nil)
	h.provider.BuildRights = true
	ctx := withRole(t, brig.Admin)
	s, err := h.CreateWithRights(ctx, brig.Spec{Require: brig.Requirement{brig.AreaEgress: brig.LevelBoundary}})
	if err != nil || len(s.Enforcement) == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = h.CreateWithRights(ctx, brig.Spec{Require: brig.Requirement{brig.AreaIsolation: brig.LevelBoundary}})
	if brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("control: a requirement that the provider does not meet: %v", err)
	}
}
