package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Capabilities implements brig.Provider.
func (p *Provider) Capabilities() brig.Capabilities {
	c := brig.Capabilities{Name: Name, Isolation: "none", Uplinks: !p.NoUplink, Saves: true, BuildRights: p.BuildRights, Volumes: p.Volumes, Enforces: maps.Clone(p.Enforces)}
	if c.Enforces == nil {
		c.Enforces = ownEnforcement()
	}
	return c
}

// ownEnforcement returns the default enforcement levels of fake instances.
func ownEnforcement() map[brig.Area]brig.Enforcement {
	out := map[brig.Area]brig.Enforcement{}
	for _, a := range brig.Areas {
		e := brig.Enforcement{Level: brig.LevelNone, How: "nothing", Help: "use another provider"}
		e.Lower(brig.LevelNone, "nothing is isolated")
		out[a] = e
	}
	for a, how := range map[brig.Area]string{
		brig.AreaOutput: "the engine keeps no more of it", brig.AreaTime: "timers end machines and commands",
		brig.AreaEgress: "a machine sends nothing but over its link",
	} {
		out[a] = brig.Enforcement{Level: brig.LevelBoundary, How: how}
	}
	return out
}

// Enforced implements brig.Instance.
func (in *instance) Enforced(context.Context) (map[brig.Area]brig.Enforcement, error) {
	if in.Exit() != nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "the machine has ended")
	}
	have := in.p.Holds
	if have == nil {
		have = in.p.Capabilities().Enforces
	}
	out := map[brig.Area]brig.Enforcement{}
	for a, e := range have {
		e.At = time.Now().UTC()
		out[a] = e
	}
	return out, nil
}

// probe replaces the agent's probe, because these instances have no agent.
func (in *instance) probe(cmd brig.Command, args []string, out io.Writer) (int, error) {
	if len(args) != 2 || args[0] != wire.ProbeWord {
		return 2, nil
	}
	var look wire.Look
	if err := json.Unmarshal([]byte(args[1]), &look); err != nil {
		return 2, err
	}
	p := wire.Posture{
		UID: 1000, Kernel: "fake", NoNewPrivs: true, Disk: in.spec.Limits.Disk,
		Processes: uint64(in.spec.Limits.Processes), OpenFiles: uint64(in.spec.Limits.OpenFiles), Failed: map[string]string{},
	}
	if cmd.User == "root" {
		p.UID = 0
	}
	for _, what := range append(look.Dial, look.Resolve...) {
		p.Failed[what] = "unreachable"
	}
	if in.p.Posture != nil {
		p = in.p.Posture(cmd.User, look)
	}
	b, err := json.Marshal(p)
	if err == nil {
		_, err = fmt.Fprintln(out, string(b))
	}
	return 0, err
}
