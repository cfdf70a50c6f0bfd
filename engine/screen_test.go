package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/fake"
)

// rejectBadSources makes an engine reject sources that contain "bad", and
// records the checked sources.
func rejectBadSources(checked *[]string) func(*engine.Options) {
	return func(o *engine.Options) {
		o.Screen = func(ctx context.Context, lang brig.Language, source string) error {
			*checked = append(*checked, brig.ActorFrom(ctx).Name+" "+string(lang)+" "+source)
			if strings.Contains(source, "bad") {
				return brig.Errorf(brig.PolicyBlocked, "Code is unsafe")
			}
			return nil
		}
		o.TypeScript = markingCompiler{}
	}
}

// markingCompiler is a TypeScript compiler whose output shows that it was used.
type markingCompiler struct{}

func (markingCompiler) Program(_ context.Context, s string) (string, error) {
	return "compiled " + s, nil
}
func (markingCompiler) Cell(_ context.Context, s string) (string, error) { return "cell " + s, nil }

// A rejected program gets no instance, and the audit log records the reason.
func TestProgramsAreScreened(t *testing.T) {
	var checked []string
	calls := 0
	h := newFixture(t, func(o *engine.Options) {
		rejectBadSources(&checked)(o)
		o.Provider = &fake.Provider{OnCreate: func(brig.ID) { calls++ }}
	})
	ctx := withRole(t, brig.Operator)
	for _, p := range []brig.Program{
		{Language: brig.Python, Code: "bad"}, {Language: brig.JavaScript, Code: "bad"},
		{Language: brig.TypeScript, Code: "bad"}, {Language: brig.Bash, Code: "bad"},
	} {
		if _, err := h.Run(ctx, p, brig.IO{}); brig.KindOf(err) != brig.PolicyBlocked {
			t.Errorf("%s: %v", p.Language, err)
		}
		events, err := h.store.Events(ctx, 2)
		if err != nil || len(events) != 2 || events[0].Kind != brig.PolicyBlocked || events[0].Phase != brig.Finish || events[1].Phase != brig.Intent {
			t.Errorf("%s: events %+v, %v", p.Language, events, err)
		}
	}
	if calls != 0 {
		t.Errorf("%d machines were made for code that was refused", calls)
	}
	if want := []string{"ann python bad", "ann javascript bad", "ann javascript compiled bad", "ann bash bad"}; !slices.Equal(checked, want) {
		t.Errorf("checked %q, want %q", checked, want)
	}
	// Commands are not screened, and code that passes gets an instance.
	if _, err := h.Run(ctx, brig.Program{Command: []string{"echo", "bad"}}, brig.IO{}); err != nil || calls != 1 {
		t.Errorf("a command: %v, %d machines", err, calls)
	}
	if _, _ = h.Run(ctx, brig.Program{Language: brig.Python, Code: "good"}, brig.IO{}); calls != 2 {
		t.Errorf("good code: %d machines", calls)
	}
}

// A rejected cell starts no interpreter, and is not run in an existing context.
func TestCellsAreScreened(t *testing.T) {
	var checked []string
	var o engine.Options
	rejectBadSources(&checked)(&o)
	withFakeClock(t, o, func(t *testing.T, h *fixture, _ *hookedProvider) {
		ctx := withRole(t, brig.Operator)
		if _, err := h.Create(ctx, brig.Spec{Name: "box"}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []brig.Code{{Source: "bad"}, {Language: brig.TypeScript, Source: "bad"}} {
			if _, err := h.RunCode(ctx, "box", c, nil); brig.KindOf(err) != brig.PolicyBlocked {
				t.Errorf("%s: %v", c.Language, err)
			}
		}
		if all, err := h.Contexts(ctx, "box"); err != nil || len(all) != 0 {
			t.Errorf("contexts of code that was refused: %+v, %v", all, err)
		}
		c, err := h.CreateContext(ctx, "box", brig.ContextSpec{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.RunCode(ctx, "box", brig.Code{Context: c.ID, Source: "bad"}, nil); brig.KindOf(err) != brig.PolicyBlocked {
			t.Errorf("in a context: %v", err)
		}
		if _, err := h.RunCode(ctx, "box", brig.Code{Context: c.ID, Source: "set x 1"}, nil); err != nil {
			t.Errorf("good code: %v", err)
		}
	})
	if want := []string{"ann python bad", "ann javascript cell bad", "ann python bad", "ann python set x 1"}; !slices.Equal(checked, want) {
		t.Errorf("checked %q, want %q", checked, want)
	}
}

// A tenant's own rules apply in addition to the server's rules, and do not affect
// other tenants.
func TestTenantScreeningRulesApplyToTenant(t *testing.T) {
	own := &brig.Screening{Rules: map[brig.Language]brig.ScreenRules{brig.Python: {Imports: []string{"ours"}}}}
	var checked []string
	h := newFixture(t, func(o *engine.Options) {
		rejectBadSources(&checked)(o)
		o.ScreenTenant = func(_ context.Context, s *brig.Screening, lang brig.Language, source string) error {
			if strings.Contains(source, s.Rules[brig.Python].Imports[0]) {
				return brig.Errorf(brig.PolicyBlocked, "not by this tenant, in %s", lang)
			}
			return nil
		}
	})
	setQuota(t, h.store, brig.Quota{}, brig.Ceilings{Screening: own})
	ctx := withRole(t, brig.Operator)
	rival := brig.WithActor(t.Context(), brig.Actor{Name: "bob", Tenant: "rival", Role: brig.Member})
	if _, err := h.Create(ctx, brig.Spec{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]map[string]brig.Kind{
		"set x 1":  {"acme": "", "rival": ""},
		"ours":     {"acme": brig.PolicyBlocked, "rival": ""},
		"bad":      {"acme": brig.PolicyBlocked, "rival": brig.PolicyBlocked},
		"bad ours": {"acme": brig.PolicyBlocked, "rival": brig.PolicyBlocked},
	} {
		for tenant, ctx := range map[string]context.Context{"acme": ctx, "rival": rival} {
			for _, lang := range []brig.Language{brig.Python, brig.TypeScript} {
				_, err := h.Run(ctx, brig.Program{Language: lang, Code: source}, brig.IO{})
				if (brig.KindOf(err) == brig.PolicyBlocked) != (want[tenant] == brig.PolicyBlocked) {
					t.Errorf("%s runs %q as %s: %v, want %q", tenant, source, lang, err, want[tenant])
				}
			}
		}
		if _, err := h.RunCode(ctx, "box", brig.Code{Source: source}, nil); (brig.KindOf(err) == brig.PolicyBlocked) != (want["acme"] == brig.PolicyBlocked) {
			t.Errorf("acme's cell %q: %v", source, err)
		}
	}
	// A server that cannot screen code rejects rules, and does not run code of
	// a tenant that has rules.
	blind := newFixture(t, nil)
	op := brig.WithActor(t.Context(), brig.Actor{Name: "op", Tenant: "rival", Role: brig.Operator})
	_, err := blind.UpdateTenant(op, brig.Tenant{Name: "acme", Ceilings: brig.Ceilings{Screening: own}})
	if e := brig.AsError(err); e == nil || e.Field != "ceilings.screening" {
		t.Errorf("rules for a server that cannot screen: %v", err)
	}
	setQuota(t, blind.store, brig.Quota{}, brig.Ceilings{Screening: own})
	if _, err := blind.Run(ctx, brig.Program{Language: brig.Python, Code: "fine"}, brig.IO{}); brig.KindOf(err) != brig.PolicyBlocked {
		t.Errorf("a program on it: %v", err)
	}
}
