package engine_test

import (
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/workspace"
)

// fullEnforcement returns the claims of a provider that enforces every area as a boundary.
func fullEnforcement() map[brig.Area]brig.Enforcement {
	out := map[brig.Area]brig.Enforcement{}
	for _, a := range brig.Areas {
		out[a] = brig.Enforcement{Level: brig.LevelBoundary, How: "so it says"}
	}
	return out
}

// withLevel is like fullEnforcement, with one area lowered.
func withLevel(a brig.Area, l brig.Level) map[brig.Area]brig.Enforcement {
	out := fullEnforcement()
	e := out[a]
	e.Lower(l, "it leaks")
	out[a] = e
	return out
}

var toHost = brig.Egress{Rules: []brig.EgressRule{{Host: "api.example.com"}}}

// Create rejects requirements that the provider cannot enforce, before it
// creates an instance.
func TestCreateRejectsUnenforceableRequirements(t *testing.T) {
	for what, c := range map[string]struct {
		provider func(*fixture)
		service  brig.Requirement
		spec     brig.Spec
		field    string // field of the error; empty for no error
		kind     brig.Kind
	}{
		"nothing is required":          {nil, nil, brig.Spec{}, "", ""},
		"more than there is":           {nil, nil, brig.Spec{Require: brig.Requirement{brig.AreaMemory: brig.LevelBoundary}}, "require.memory", brig.FailedPrecondition},
		"as much as there is":          {nil, nil, brig.Spec{Require: brig.Requirement{brig.AreaTime: brig.LevelBoundary}}, "", ""},
		"by the service":               {nil, brig.Requirement{brig.AreaDisk: brig.LevelGaps}, brig.Spec{}, "require.disk", brig.FailedPrecondition},
		"no area":                      {nil, nil, brig.Spec{Require: brig.Requirement{"memori": brig.LevelGaps}}, "require", brig.InvalidArgument},
		"no level":                     {nil, nil, brig.Spec{Require: brig.Requirement{brig.AreaMemory: "strong"}}, "require.memory", brig.InvalidArgument},
		"rules":                        {nil, nil, brig.Spec{Egress: toHost}, "", ""},
		"rules without an uplink":      {func(h *fixture) { h.provider.NoUplink = true }, nil, brig.Spec{Egress: toHost}, "egress", brig.FailedPrecondition},
		"rules that nobody enforces":   {func(h *fixture) { h.provider.Enforces = withLevel(brig.AreaEgress, brig.LevelNone) }, nil, brig.Spec{Egress: toHost}, "egress", brig.FailedPrecondition},
		"no rules without an uplink":   {func(h *fixture) { h.provider.NoUplink = true }, nil, brig.Spec{}, "", ""},
		"a brokered secret":            {nil, nil, brig.Spec{Secrets: []brig.SecretUse{{Name: "brokered"}}}, "", ""},
		"one without a proxy":          {func(h *fixture) { h.provider.NoUplink = true }, nil, brig.Spec{Secrets: []brig.SecretUse{{Name: "plain"}, {Name: "brokered"}}}, "secrets[1].name", brig.FailedPrecondition},
		"a variable without a proxy":   {func(h *fixture) { h.provider.NoUplink = true }, nil, brig.Spec{Secrets: []brig.SecretUse{{Name: "plain"}}}, "", ""},
		"secrets as well as egress":    {func(h *fixture) { h.provider.Enforces = withLevel(brig.AreaEgress, brig.LevelGaps) }, nil, brig.Spec{Require: brig.Requirement{brig.AreaSecrets: brig.LevelBoundary}}, "require.secrets", brig.FailedPrecondition},
		"a provider that says nothing": {func(h *fixture) { h.provider.Enforces = map[brig.Area]brig.Enforcement{} }, nil, brig.Spec{Require: brig.Requirement{brig.AreaTime: brig.LevelGaps}}, "require.time", brig.FailedPrecondition},
	} {
		t.Run(what, func(t *testing.T) {
			h := newFixture(t, func(o *engine.Options) { o.Require = c.service })
			ctx := withRole(t, brig.Admin)
			for name, hosts := range map[string][]string{"plain": nil, "brokered": {"api.example.com"}} {
				if _, err := h.PutSecret(ctx, brig.SecretChange{Name: name, Hosts: hosts, Value: []byte("a value that is long")}); err != nil {
					t.Fatal(err)
				}
			}
			if c.provider != nil {
				c.provider(h)
			}
			probes := 0
			h.provider.OnCreate = func(brig.ID) { probes++ }
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
			if (probes > 0) != (c.kind == "") {
				t.Errorf("%d machines were made", probes)
			}
		})
	}
}

// SetEgress rejects rules for a running sandbox that has no uplink.
func TestSetEgressRejectsRulesWithoutUplink(t *testing.T) {
	h := newFixture(t, nil)
	h.provider.NoUplink = true
	ctx := withRole(t, brig.Admin)
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

// If the rules of a sandbox cannot be changed, its record keeps the old rules, even
// if the provider supports rules for other sandboxes.
func TestSetEgressRestoresRulesOnFailure(t *testing.T) {
	h := newFixture(t, nil)
	h.provider.Ruled = true
	ctx := withRole(t, brig.Admin)
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

// If a provider claims more than its instances enforce, the engine rejects the
// requirement, removes the instance, and leaves no record.
func TestProviderOverclaimIsRejected(t *testing.T) {
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
		"the host sees it":         {withLevel(brig.AreaMemory, brig.LevelNone), nil, brig.AreaMemory},
		"root sees it from inside": {nil, leaky, brig.AreaIsolation},
		"nobody sees anything":     {nil, nil, ""}, // the control
	} {
		t.Run(what, func(t *testing.T) {
			h := newFixture(t, nil)
			h.provider.Enforces, h.provider.Holds = fullEnforcement(), c.holds
			h.provider.Posture = c.posture
			ctx := withRole(t, brig.Admin)
			spec := brig.Spec{Name: "box", Command: &brig.Command{Argv: []string{"sleep", "60"}}, Require: brig.Requirement{}}
			for _, a := range brig.Areas {
				spec.Require[a] = brig.LevelBoundary
			}
			delete(spec.Require, brig.AreaWorkspace) // this engine has no workspaces
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

// The engine rejects an instance that enforces less than the examined instance
// of the same image.
func TestInstanceWorseThanItsImageIsRejected(t *testing.T) {
	h := newFixture(t, nil)
	h.provider.Enforces = fullEnforcement()
	ctx := withRole(t, brig.Admin)
	spec := brig.Spec{Require: brig.Requirement{brig.AreaMemory: brig.LevelBoundary}}
	if _, err := h.Create(ctx, spec); err != nil {
		t.Fatal(err)
	}
	before := len(h.provider.Machines())
	h.provider.Holds = withLevel(brig.AreaMemory, brig.LevelGaps)
	_, err := h.Create(ctx, spec)
	if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "this sandbox") {
		t.Errorf("%v", err)
	}
	if after := len(h.provider.Machines()); after != before {
		t.Errorf("%d machines, there were %d", after, before)
	}
}

func TestAttestReportsEnforcement(t *testing.T) {
	h := newFixture(t, nil)
	h.provider.Enforces = fullEnforcement()
	ctx := withRole(t, brig.Admin)
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

// Neither the evidence, which tenants can read, nor the probe, which their programs
// can observe, contains an address of the server.
func TestEvidenceHasNoHostAddress(t *testing.T) {
	own := ownAddresses(t)
	has := func(text string) bool {
		return slices.ContainsFunc(own, func(a string) bool { return strings.Contains(text, a) })
	}
	respond := func(look wire.Look) wire.Posture {
		p := wire.Posture{NoNewPrivs: true, Disk: brig.GiB, Failed: map[string]string{}}
		for i, a := range look.Dial {
			if i == 0 {
				p.Reached = []string{a}
			}
			p.Failed[a] = "dial tcp " + a + ": connection refused"
		}
		return p
	}
	t.Run("a tenant's machine", func(t *testing.T) {
		h := newFixture(t, nil)
		h.provider.Enforces = fullEnforcement()
		examined := false
		h.provider.Posture = func(_ string, look wire.Look) wire.Posture {
			examined = true
			if has(fmt.Sprint(look)) {
				t.Errorf("the sandbox was asked for %v", look)
			}
			return respond(look)
		}
		ctx := withRole(t, brig.Admin)
		if _, err := h.Create(ctx, brig.Spec{Name: "box"}); err != nil {
			t.Fatal(err)
		}
		s, err := h.Attest(ctx, "box")
		if err != nil || !examined || has(fmt.Sprint(s.Enforcement)) {
			t.Errorf("%+v, %v", s.Enforcement, err)
		}
	})
	t.Run("the pool", func(t *testing.T) {
		withFakeClock(t, newPoolOptions(2), func(t *testing.T, h *fixture, p *hookedProvider) {
			s, err := h.Create(withRole(t, brig.Admin), brig.Spec{Name: "box"})
			if err != nil || len(s.Enforcement) == 0 || has(fmt.Sprint(s.Enforcement)) {
				t.Errorf("%+v, %v", s.Enforcement, err)
			}
		})
	})
}

// ownAddresses returns the addresses of this host's interfaces.
func ownAddresses(t *testing.T) (out []string) {
	t.Helper()
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			out = append(out, n.IP.String()+":")
		}
	}
	return out
}

// Pooled sandboxes are examined once per image.
func TestPoolIsAttested(t *testing.T) {
	withFakeClock(t, newPoolOptions(2), func(t *testing.T, h *fixture, p *hookedProvider) {
		ctx := withRole(t, brig.Admin)
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

// The engine reports the areas that it enforces itself, regardless of the
// provider's claims.
func TestEngineReportsEnforcedAreas(t *testing.T) {
	for what, c := range map[string]struct {
		change             func(*engine.Options)
		secrets, workspace brig.Level
	}{
		"nothing is kept": {func(o *engine.Options) { o.Keys, o.Workspaces = nil, nil }, brig.LevelNone, brig.LevelNone},
		"secrets are":     {func(o *engine.Options) { o.Workspaces = nil }, brig.LevelBoundary, brig.LevelNone},
		"both are":        {func(o *engine.Options) { o.Workspaces = &workspace.Store{} }, brig.LevelBoundary, brig.LevelBoundary},
	} {
		h := newFixture(t, c.change)
		h.provider.Enforces = fullEnforcement()
		caps, err := h.Capabilities(withRole(t, brig.Viewer))
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
