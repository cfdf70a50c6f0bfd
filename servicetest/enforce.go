package servicetest

import (
	"testing"

	"github.com/brig-run/brig"
)

// testEnforcement checks that every area has an enforcement claim, that the
// observed level never exceeds the claimed level, and that a client cannot
// require a level that is not enforced.
func (h Harness) testEnforcement(t *testing.T) {
	ctx := h.Context(t)
	caps, err := h.Service.Capabilities(ctx)
	if err != nil || caps.Name == "" || caps.Isolation == "" {
		t.Fatalf("Capabilities = %+v, %v", caps, err)
	}
	box := h.sandbox(t, brig.Spec{})
	box, err = h.Service.Attest(ctx, box.Spec.Name)
	if err != nil {
		t.Fatalf("Attest: %v", err)
	}
	for _, a := range brig.Areas {
		claim, seen := caps.Enforces[a], box.Enforcement[a]
		if !claim.Level.Meets(brig.LevelNone) || !claim.Level.Meets(seen.Level) || seen.At.IsZero() {
			t.Errorf("%s: claimed %+v, seen %+v", a, claim, seen)
		}
		whole := claim.Level == brig.LevelBoundary
		if whole != (len(claim.Gaps) == 0) {
			t.Errorf("%s is %s with the gaps %q", a, claim.Level, claim.Gaps)
		}
		if whole {
			continue
		}
		_, err := h.Service.Create(ctx, brig.Spec{Require: brig.Requirement{a: brig.LevelBoundary}})
		wantKind(t, "Create that requires "+string(a), err, brig.FailedPrecondition)
		if e := brig.AsError(err); e != nil && (e.Field != "require."+string(a) || e.Hint == "") {
			t.Errorf("%s: the error blames %q and hints %q", a, e.Field, e.Hint)
		}
	}
	_, err = h.Service.Create(ctx, brig.Spec{Require: brig.Requirement{"memori": brig.LevelGaps}})
	wantField(t, "Create that requires what is no area", err, "require")
	_, err = h.Service.Run(ctx, brig.Program{Command: h.argv("echo"), Require: brig.Requirement{brig.AreaMemory: "strong"}}, brig.IO{})
	wantField(t, "Run that requires no level", err, "require.memory")
}
