package engine_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/workspace"
)

// firm is a provider's word that everything is a boundary.
func firm() map[brig.Area]brig.Enforcement {
	out := map[brig.Area]brig.Enforcement{}
	for _, a := range brig.Areas {
		out[a] = brig.Enforcement{Level: brig.LevelBoundary, How: "so it says"}
	}
	return out
}

// but is firm, with one area lowered.
func but(a brig.Area, l brig.Level) map[brig.Area]brig.Enforcement {
	out := firm()
	e := out[a]
	e.Lower(l, "it leaks")
	out[a] = e
	return out
}

var toHost = brig.Egress{Rules: []brig.EgressRule{{Host: "api.example.com"}}}

// What a provider cannot enforce is refused before there is any machine.
func TestAdmission(t *testing.T) {
	for what, c := range map[string]struct {
		provider func(*house)
		service  brig.Requirement
		spec     brig.Spec
		field    string // of the error; empty is none
		kind     brig.Kind
	}{
		"nothing is required":          {nil, nil, brig.Spec{}, "", ""},
		"more than there is":           {nil, nil, brig.Spec{Require: brig.Requirement{brig.AreaMemory: brig.LevelBoundary}}, "require.memory", brig.FailedPrecondition},
		"as much as there is":          {nil, nil, brig.Spec{Require: brig.Requirement{brig.AreaTime: brig.LevelBoundary}}, "", ""},
		"by the service":               {nil, brig.Requirement{brig.AreaDisk: brig.LevelGaps}, brig.Spec{}, "require.disk", brig.FailedPrecondition},
		"no area":                      {nil, nil, brig.Spec{Require: brig.Requirement{"memori": brig.LevelGaps}}, "require", brig.InvalidArgument},
		"no level":                     {nil, nil, brig.Spec{Require: brig.Requirement{brig.AreaMemory: "strong"}}, "require.memory", brig.InvalidArgument},
		"rules":                        {nil, nil, brig.Spec{Egress: toHost}, "", ""},
		"rules without an uplink":      {func(h *house) { h.provider.NoUplink = true }, nil, brig.Spec{Egress: toHost}, "egress", brig.FailedPrecondition},
		"rules that nobody enforces":   {func(h *house) { h.provider.Enforces = but(brig.AreaEgress, brig.LevelNone) }, nil, brig.Spec{Egress: toHost}, "egress", brig.FailedPrecondition},
		"no rules without an uplink":   {func(h *house) { h.provider.NoUplink = true }, nil, brig.Spec{}, "", ""},
		"a brokered secret":            {nil, nil, brig.Spec{Secrets: []brig.SecretUse{{Name: "brokered"}}}, "", ""},
		"one without a proxy":          {func(h *house) { h.provider.NoUplink = true }, nil, brig.Spec{Secrets: []brig.SecretUse{{Name: "plain"}, {Name: "brokered"}}}, "secrets[1].name", brig.FailedPrecondition},
		"a variable without a proxy":   {func(h *house) { h.provider.NoUplink = true }, nil, brig.Spec{Secrets: []brig.SecretUse{{Name: "plain"}}}, "", ""},
		"secrets as well as egress":    {func(h *house) { h.provider.Enforces = but(brig.AreaEgress, brig.LevelGaps) }, nil, brig.Spec{Require: brig.Requirement{brig.AreaSecrets: brig.LevelBoundary}}, "require.secrets", brig.FailedPrecondition},
		"a provider that says nothing": {func(h *house) { h.provider.Enforces = map[brig.Area]brig.Enforcement{} }, nil, brig.Spec{Require: brig.Requirement{brig.AreaTime: brig.LevelGaps}}, "require.time", brig.FailedPrecondition},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHouse(t, func(o *engine.Options) { o.Require = c.service })
			ctx := as(t, brig.Admin)
			for name, hosts := range map[string][]string{"plain": nil, "brokered": {"api.example.com"}} {
				if _, err := h.PutSecret(ctx, brig.SecretChange{Name: name, Hosts: hosts, Value: []byte("a value that is long")}); err != nil {
					t.Fatal(err)
				}
			}
			if c.provider != nil {
				c.provider(h)
			}
			made := 0
			h.provider.OnCreate = func(brig.ID) { made++ }
			_, err := h.Create(ctx, c.spec)
			check := func(err error) {
				t.Helper()
				if brig.KindOf(err) != c.kind || err != nil && (brig.AsError(err).Field != c.field || brig.AsError(err).Hint == "") {
					t.Errorf("%+v, want %q of the field %q", brig.AsError(err), c.kind, c.field)
				}
			}
			check(err)
			_, err = h.Run(ctx, brig.Program{Command: []string{"echo"}, Egress: c.spec.Egress, Secrets: c.spec.Secrets, Require: c.spec.Require}, brig.IO{})
			check(err)
			if (made > 0) != (c.kind == "") {
				t.Errorf("%d machines were made", made)
			}
		})
	}
}

// Rules are refused for a sandbox that runs, too.
func TestSetEgressWithoutUplink(t *testing.T) {
	h := newHouse(t, nil)
	h.provider.NoUplink = true
	ctx := as(t, brig.Admin)
	if _, err := h.Create(ctx, brig.Spec{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.SetEgress(ctx, "box", toHost); brig.KindOf(err) != brig.FailedPrecondition || brig.AsError(err).Field != "egress" {
		t.Errorf("%v", err)
	}
	if s, err := h.Get(ctx, "box"); err != nil || len(s.Spec.Egress.Rules) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// Rules that a sandbox cannot have although others at its provider do are not on
// record after.
func TestSetEgressTooLate(t *testing.T) {
	h := newHouse(t, nil)
	h.provider.Ruled = true
	ctx := as(t, brig.Admin)
	for name, rules := range map[string]brig.Egress{"without": {}, "with": toHost} {
		if _, err := h.Create(ctx, brig.Spec{Name: name, Egress: rules}); err != nil {
			t.Fatal(err)
		}
		want := brig.Egress{Rules: []brig.EgressRule{{Host: "other.example.com"}}}
		_, err := h.SetEgress(ctx, name, want)
		if had := len(rules.Rules) > 0; had != (err == nil) || !had && brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("%s rules: %v", name, err)
		} else if !had {
			want = rules
		}
		if s, err := h.Get(ctx, name); err != nil || !reflect.DeepEqual(s.Spec.Egress.Rules, want.Rules) {
			t.Errorf("%s rules: it has %+v, %v", name, s, err)
		}
	}
}

// A provider that claims more than its machines do: what is required is
// refused, the machine is gone, and nothing is on record.
func TestProviderThatLies(t *testing.T) {
	leaky := func(user string, _ wire.Look) wire.Posture {
		p := wire.Posture{UID: 1000, NoNewPrivs: true, Disk: brig.GiB, Processes: 256, OpenFiles: 1024}
		if user == "root" {
			p.UID, p.Capabilities = 0, 1<<21
		}
		return p
	}
	for what, c := range map[string]struct {
		holds   map[brig.Area]brig.Enforcement
		posture func(string, wire.Look) wire.Posture
		area    brig.Area
	}{
		"the host sees it":         {but(brig.AreaMemory, brig.LevelNone), nil, brig.AreaMemory},
		"root sees it from inside": {nil, leaky, brig.AreaIsolation},
		"nobody sees anything":     {nil, nil, ""}, // the control
	} {
		t.Run(what, func(t *testing.T) {
			h := newHouse(t, nil)
			h.provider.Enforces, h.provider.Holds = firm(), c.holds
			h.provider.Posture = c.posture
			ctx := as(t, brig.Admin)
			spec := brig.Spec{Name: "box", Command: &brig.Command{Argv: []string{"sleep", "60"}}, Require: brig.Requirement{}}
			for _, a := range brig.Areas {
				spec.Require[a] = brig.LevelBoundary
			}
			delete(spec.Require, brig.AreaWorkspace) // there are none here
			s, err := h.Create(ctx, spec)
			if c.area == "" {
				if err != nil || s.Enforcement[brig.AreaIsolation].Level != brig.LevelBoundary || len(s.Enforcement[brig.AreaIsolation].Evidence) == 0 {
					t.Errorf("%+v, %v", s, err)
				}
				return
			}
			if e := brig.AsError(err); e == nil || e.Kind != brig.FailedPrecondition || e.Field != "require."+string(c.area) {
				t.Errorf("%+v, want %s", e, c.area)
			}
			if ids := h.provider.Machines(); len(ids) > 0 {
				t.Errorf("left: %v", ids)
			}
			if _, err := h.Get(ctx, "box"); brig.KindOf(err) != brig.NotFound {
				t.Errorf("%v", err)
			}
		})
	}
}

// A machine may be worse than the one of its image that was looked into.
func TestOneMachineThatIsWorse(t *testing.T) {
	h := newHouse(t, nil)
	h.provider.Enforces = firm()
	ctx := as(t, brig.Admin)
	spec := brig.Spec{Require: brig.Requirement{brig.AreaMemory: brig.LevelBoundary}}
	if _, err := h.Create(ctx, spec); err != nil {
		t.Fatal(err)
	}
	before := len(h.provider.Machines())
	h.provider.Holds = but(brig.AreaMemory, brig.LevelGaps)
	_, err := h.Create(ctx, spec)
	if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "this sandbox") {
		t.Errorf("%v", err)
	}
	if after := len(h.provider.Machines()); after != before {
		t.Errorf("%d machines, there were %d", after, before)
	}
}

func TestAttest(t *testing.T) {
	h := newHouse(t, nil)
	h.provider.Enforces = firm()
	ctx := as(t, brig.Admin)
	s, err := h.Create(ctx, brig.Spec{Name: "box"})
	if err != nil || s.Enforcement != nil {
		t.Fatalf("before anybody looked: %+v, %v", s, err)
	}
	if s, err = h.Attest(ctx, "box"); err != nil || s.Enforcement[brig.AreaIsolation].Level != brig.LevelBoundary || s.Enforcement[brig.AreaIsolation].At.IsZero() {
		t.Fatalf("%+v, %v", s, err)
	}
	h.provider.Posture = func(_ string, look wire.Look) wire.Posture {
		return wire.Posture{NoNewPrivs: true, Disk: brig.GiB, Reached: look.Dial[:1]}
	}
	if s, err = h.Attest(ctx, "box"); err != nil || s.Enforcement[brig.AreaEgress].Level != brig.LevelNone || s.Enforcement[brig.AreaSecrets].Level != brig.LevelNone {
		t.Errorf("what answers although no rule allows it: %+v, %v", s.Enforcement[brig.AreaEgress], err)
	}
	if got, err := h.Get(ctx, "box"); err != nil || got.Enforcement[brig.AreaEgress].Level != brig.LevelNone {
		t.Errorf("on record: %+v, %v", got, err)
	}
}

// What waits in the pool was looked into, once for its image.
func TestPoolIsAttested(t *testing.T) {
	bubble(t, warm(2), func(t *testing.T, h *house, p *tricky) {
		ctx := as(t, brig.Admin)
		s, err := h.Create(ctx, brig.Spec{Name: "box"})
		if err != nil || s.Pool != brig.PoolHit {
			t.Fatalf("%+v, %v", s, err)
		}
		e, ok := s.Enforcement[brig.AreaEgress]
		if !ok || e.Level != brig.LevelBoundary || e.At.IsZero() || len(e.Evidence) == 0 {
			t.Errorf("%+v", s.Enforcement)
		}
	})
}

// What is the engine's own is said by it, whatever a provider says.
func TestOwnAreas(t *testing.T) {
	for what, c := range map[string]struct {
		change             func(*engine.Options)
		secrets, workspace brig.Level
	}{
		"nothing is kept": {func(o *engine.Options) { o.Keys, o.Workspaces = nil, nil }, brig.LevelNone, brig.LevelNone},
		"secrets are":     {func(o *engine.Options) { o.Workspaces = nil }, brig.LevelBoundary, brig.LevelNone},
		"both are":        {func(o *engine.Options) { o.Workspaces = &workspace.Store{} }, brig.LevelBoundary, brig.LevelBoundary},
	} {
		h := newHouse(t, c.change)
		h.provider.Enforces = firm()
		caps, err := h.Capabilities(as(t, brig.Viewer))
		if err != nil {
			t.Fatal(err)
		}
		if got := caps.Enforces[brig.AreaSecrets].Level; got != c.secrets {
			t.Errorf("%s: secrets is %s, want %s", what, got, c.secrets)
		}
		if got := caps.Enforces[brig.AreaWorkspace].Level; got != c.workspace {
			t.Errorf("%s: workspace is %s, want %s", what, got, c.workspace)
		}
	}
}
