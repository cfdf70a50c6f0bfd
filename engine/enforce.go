package engine

import (
	"context"
	"maps"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
)

// Capabilities implements brig.Service.
func (ps *providers) Capabilities(ctx context.Context) (*brig.Capabilities, error) {
	return do(ctx, ps.gate, brig.OpCapabilities, "", func(v *call) (*brig.Capabilities, error) {
		c := ps.capabilities(ps.builtin())
		return &c, nil
	})
}

// capabilities returns the combined capabilities of a provider and the engine.
func (ps *providers) capabilities(backend *placement.Backend) brig.Capabilities {
	c := backend.Provider.Capabilities()
	c.Enforces = ps.withEngineControls(c.Uplinks, c.Enforces)
	return c
}

// withEngineControls adds the areas that the engine enforces to a provider's areas.
func (ps *providers) withEngineControls(uplinks bool, areas map[brig.Area]brig.Enforcement) map[brig.Area]brig.Enforcement {
	out := maps.Clone(areas)
	if out == nil {
		out = map[brig.Area]brig.Enforcement{}
	}
	for _, a := range brig.Areas {
		if _, reported := out[a]; !reported {
			x := brig.Enforcement{}
			x.Lower(brig.LevelNone, "the provider says nothing of it")
			x.Level = brig.LevelNone
			out[a] = x
		}
	}
	out[brig.AreaSecrets] = ps.brokerEnforcement(uplinks, out[brig.AreaEgress])
	out[brig.AreaWorkspace] = ps.workspaceEnforcement(out[brig.AreaEgress])
	return out
}

// brokerEnforcement reports how strictly the values of brokered secrets are kept outside the
// sandbox. The level is at most that of egress, because only the proxy, which holds the values, may
// carry the sandbox's traffic.
func (ps *providers) brokerEnforcement(uplinks bool, egress brig.Enforcement) brig.Enforcement {
	x := brig.Enforcement{
		Level: brig.LevelBoundary, At: egress.At,
		How: "the sandbox has a placeholder; the proxy puts the value into requests to the secret's hosts",
	}
	if !uplinks {
		x.Lower(brig.LevelNone, "the provider's machines cannot connect to anything")
		x.Help = "use a provider whose machines have uplinks"
	}
	if ps.Options.Keys == nil {
		x.Lower(brig.LevelNone, "this process stores no secrets")
		x.Help = "ask a server: brig serve"
	}
	if !egress.Level.Meets(x.Level) {
		x.Lower(egress.Level, "what leaves the sandbox is not all seen: egress is %s", egress.Level)
	}
	return x
}

// workspaceEnforcement reports how strictly the mode and the prefixes of a
// workspace are enforced. A sandbox has only a copy of its workspace. The
// report takes its observation time from other.
func (ps *providers) workspaceEnforcement(other brig.Enforcement) brig.Enforcement {
	x := brig.Enforcement{
		Level: brig.LevelBoundary, At: other.At,
		How: "a sandbox has a copy; the server decides what of it becomes a version",
	}
	if ps.Options.Workspaces == nil {
		x.Lower(brig.LevelNone, "this process stores no workspaces")
		x.Help = "ask a server: brig serve"
	}
	return x
}

// requirementOf returns the enforcement that the sandbox and the service require.
func (ps *providers) requirementOf(spec *brig.Spec) brig.Requirement {
	return spec.Require.With(ps.Require)
}

// checkEnforced rejects a sandbox whose requirements, rules or secrets the
// provider cannot enforce, before an instance is created.
func (ps *providers) checkEnforced(ctx context.Context, backend *placement.Backend, tenant string, spec *brig.Spec) error {
	if (spec.Pausable || spec.PauseAtEnd || spec.PauseAfter != 0) && !backend.Provider.Capabilities().Saves {
		err := errCannotSave(backend.ID)
		switch err.Field = "pausable"; {
		case spec.PauseAtEnd:
			err.Field = "pause_at_end"
		case spec.PauseAfter != 0:
			err.Field = "pause_after_ms"
		}
		return err
	}
	if spec.BuildRights && !backend.Provider.Capabilities().BuildRights {
		return brig.NoBuildRights(backend.ID)
	}
	if len(spec.Volumes) > 0 && !backend.Provider.Capabilities().Volumes {
		return brig.NoVolumes(backend.ID)
	}
	need := ps.requirementOf(spec)
	if len(need)+len(spec.Egress.Rules)+len(spec.Secrets) == 0 {
		return nil
	}
	c := ps.capabilities(backend)
	if err := need.UnmetError("require", "the provider "+c.Name, c.Enforces); err != nil {
		return err
	}
	if err := checkRules(c, &spec.Egress); err != nil {
		return err
	}
	return ps.checkBrokered(ctx, c, tenant, spec.Secrets)
}

// checkRules rejects rules if the provider cannot enforce them.
func checkRules(c brig.Capabilities, rules *brig.Egress) error {
	if len(rules.Rules) == 0 {
		return nil
	}
	refused := func(format string, args ...any) error {
		err := brig.Errorf(brig.FailedPrecondition, format, args...)
		err.Field = "egress"
		return err.WithHint("leave out egress: the sandbox then connects to nothing; or use a provider that enforces it (brig capabilities)")
	}
	if !c.Uplinks {
		return refused("the provider %s cannot enforce egress rules: its machines have no uplink", c.Name)
	}
	if !c.Enforces[brig.AreaEgress].Level.Meets(brig.LevelGaps) {
		return refused("the provider %s cannot enforce egress rules: egress is %s", c.Name, brig.LevelNone)
	}
	return nil
}

// checkBrokered rejects brokered secrets if the provider has no proxy for them.
func (ps *providers) checkBrokered(ctx context.Context, c brig.Capabilities, tenant string, uses []brig.SecretUse) error {
	if c.Enforces[brig.AreaSecrets].Level.Meets(brig.LevelGaps) {
		return nil
	}
	for i, u := range uses {
		s, err := ps.Store.GetSecret(ctx, tenant, u.Name)
		if err != nil || len(s.Hosts) == 0 {
			continue // findSecrets reports the error
		}
		refused := brig.Errorf(brig.FailedPrecondition, "the provider %s cannot keep the value of %q outside of the sandbox: it does not enforce secrets", c.Name, u.Name)
		refused.Field = "secrets[" + strconv.Itoa(i) + "].name"
		return refused.WithHint("leave it out, or use a provider that enforces it (brig capabilities)")
	}
	return nil
}
