package contract

import (
	"bytes"
	"maps"
	"slices"

	"github.com/brig-run/brig"
)

// The clone functions distinguish nil from empty values and convert every time to UTC.
// storetest fills every existing field, so a new field that is not cloned here fails a test.

// CloneRecord returns a copy that shares no memory with r.
func CloneRecord(r *brig.Record) *brig.Record {
	c := *r
	c.Spec.Env = maps.Clone(r.Spec.Env)
	c.Spec.Labels = maps.Clone(r.Spec.Labels)
	c.Spec.Egress.Rules = slices.Clone(r.Spec.Egress.Rules)
	for i, rule := range c.Spec.Egress.Rules {
		c.Spec.Egress.Rules[i].Ports = slices.Clone(rule.Ports)
		c.Spec.Egress.Rules[i].Methods, c.Spec.Egress.Rules[i].Paths = slices.Clone(rule.Methods), slices.Clone(rule.Paths)
	}
	c.Spec.Require = maps.Clone(r.Spec.Require)
	c.Spec.Secrets = slices.Clone(r.Spec.Secrets)
	c.Spec.Volumes = slices.Clone(r.Spec.Volumes)
	c.Spec.Workspace.Prefixes = slices.Clone(r.Spec.Workspace.Prefixes)
	c.Spec.Workspace.Capture = slices.Clone(r.Spec.Workspace.Capture)
	if r.Spec.Command != nil {
		cmd := CloneCommand(*r.Spec.Command)
		c.Spec.Command = &cmd
	}
	c.Created, c.Expires, c.Ended = r.Created.UTC(), r.Expires.UTC(), r.Ended.UTC()
	if r.Pause != nil {
		pause := *r.Pause
		c.Pause = &pause
	}
	if r.SaveKey != nil {
		c.SaveKey = &brig.SealedKey{Key: r.SaveKey.Key, Sealed: bytes.Clone(r.SaveKey.Sealed)}
	}
	if r.Exit != nil {
		exit := *r.Exit
		exit.At = exit.At.UTC()
		c.Exit = &exit
	}
	c.Former = slices.Clone(r.Former)
	c.Given = slices.Clone(r.Given)
	for i, s := range c.Given {
		c.Given[i] = CloneSecret(s)
	}
	c.Notes = slices.Clone(r.Notes)
	c.Enforcement = maps.Clone(r.Enforcement)
	for area, x := range c.Enforcement {
		x.Gaps, x.Evidence, x.At = slices.Clone(x.Gaps), slices.Clone(x.Evidence), x.At.UTC()
		c.Enforcement[area] = x
	}
	c.Spec.Placement.Regions = slices.Clone(r.Spec.Placement.Regions)
	c.Route.Attempts = slices.Clone(r.Route.Attempts)
	c.Handle.State = bytes.Clone(r.Handle.State)
	return &c
}

// CloneSecret returns a copy that shares no memory with s.
func CloneSecret(s brig.Secret) brig.Secret {
	s.Hosts, s.Places, s.Allow = slices.Clone(s.Hosts), slices.Clone(s.Places), slices.Clone(s.Allow)
	s.Created, s.Updated = s.Created.UTC(), s.Updated.UTC()
	return s
}

// CloneCommand returns a copy that shares no memory with c.
func CloneCommand(c brig.Command) brig.Command {
	c.Argv = slices.Clone(c.Argv)
	c.Env = maps.Clone(c.Env)
	return c
}
