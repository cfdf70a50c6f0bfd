package engine

import (
	"context"
	"maps"
	"strconv"

	"github.com/brig-run/brig"
)

// Capabilities implements brig.Service.
func (e *Engine) Capabilities(ctx context.Context) (_ *brig.Capabilities, err error) {
	v, err := e.enter(ctx, brig.OpCapabilities, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	c := e.capabilities(e.home())
	return &c, nil
}

// capabilities are what a provider and the engine can do together.
func (e *Engine) capabilities(at *member) brig.Capabilities {
	c := at.provider.Capabilities()
	c.Enforces = e.withOwn(c.Uplinks, c.Enforces)
	return c
}

// withOwn adds what is the engine's own to what a provider enforces.
func (e *Engine) withOwn(uplinks bool, areas map[brig.Area]brig.Enforcement) map[brig.Area]brig.Enforcement {
	out := maps.Clone(areas)
	if out == nil {
		out = map[brig.Area]brig.Enforcement{}
	}
	for _, a := range brig.Areas {
		if _, said := out[a]; !said {
			x := brig.Enforcement{}
			x.Lower(brig.LevelNone, "the provider says nothing of it")
			x.Level = brig.LevelNone
			out[a] = x
		}
	}
	out[brig.AreaSecrets] = e.brokering(uplinks, out[brig.AreaEgress])
	out[brig.AreaWorkspace] = e.keeping(out[brig.AreaEgress])
	return out
}

// brokering says how far values of brokered secrets stay outside: as far as
// nothing leaves but through the proxy that knows them.
func (e *Engine) brokering(uplinks bool, egress brig.Enforcement) brig.Enforcement {
	x := brig.Enforcement{
		Level: brig.LevelBoundary, At: egress.At,
		How: "the sandbox has a placeholder; the proxy puts the value into requests to the secret's hosts",
	}
	if !uplinks {
		x.Lower(brig.LevelNone, "the provider's machines cannot connect to anything")
		x.Help = "use a provider whose machines have uplinks"
	}
	if e.Options.Keys == nil {
		x.Lower(brig.LevelNone, "secrets are not kept here")
		x.Help = "ask a server: brig serve"
	}
	if !egress.Level.Meets(x.Level) {
		x.Lower(egress.Level, "what leaves the sandbox is not all seen: egress is %s", egress.Level)
	}
	return x
}

// keeping says what holds a workspace to its mode and prefixes: a sandbox only
// ever has a copy. It is as old as what was seen of other areas.
func (e *Engine) keeping(other brig.Enforcement) brig.Enforcement {
	x := brig.Enforcement{
		Level: brig.LevelBoundary, At: other.At,
		How: "a sandbox has a copy; the server decides what of it becomes a version",
	}
	if e.Options.Workspaces == nil {
		x.Lower(brig.LevelNone, "workspaces are not kept here")
		x.Help = "ask a server: brig serve"
	}
	return x
}

// required is the least that a sandbox and the service ask for.
func (e *Engine) required(spec *brig.Spec) brig.Requirement { return spec.Require.With(e.Require) }

// checkEnforced refuses what this provider cannot enforce, before anything is
// made: what is asked for, and what rules and secrets need.
func (e *Engine) checkEnforced(ctx context.Context, at *member, tenant string, spec *brig.Spec) error {
	need := e.required(spec)
	if len(need)+len(spec.Egress.Rules)+len(spec.Secrets) == 0 {
		return nil
	}
	c := e.capabilities(at)
	if err := need.Unmet("require", "the provider "+c.Name, c.Enforces); err != nil {
		return err
	}
	if err := checkRules(c, &spec.Egress); err != nil {
		return err
	}
	return e.checkBrokered(ctx, c, tenant, spec.Secrets)
}

// checkRules refuses rules that nobody would hold a machine to.
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

// checkBrokered refuses secrets that only a proxy may see where there is none.
func (e *Engine) checkBrokered(ctx context.Context, c brig.Capabilities, tenant string, uses []brig.SecretUse) error {
	if c.Enforces[brig.AreaSecrets].Level.Meets(brig.LevelGaps) {
		return nil
	}
	for i, u := range uses {
		s, err := e.Store.GetSecret(ctx, tenant, u.Name)
		if err != nil || len(s.Hosts) == 0 {
			continue // findSecrets says what is wrong with it
		}
		refused := brig.Errorf(brig.FailedPrecondition, "the provider %s cannot keep the value of %q outside of the sandbox: it does not enforce secrets", c.Name, u.Name)
		refused.Field = "secrets[" + strconv.Itoa(i) + "].name"
		return refused.WithHint("leave it out, or use a provider that enforces it (brig capabilities)")
	}
	return nil
}
