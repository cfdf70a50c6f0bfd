package attest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Probe looks for gaps from inside an instance with the given specification, and returns its
// findings. newID returns the id of an execution. In a vacant instance, which belongs to no tenant
// yet, the probe also tries to connect to this host. In other instances, a tenant's programs would
// see the host address that this needs.
func Probe(ctx context.Context, in brig.Instance, spec brig.Spec, vacant bool, newID func() string) ([]Finding, error) {
	var out sink
	var own []netip.AddrPort
	if vacant {
		out, own = openSink(ctx)
	}
	defer out.close()
	findings, err := runProbe(ctx, in, spec, blockedTargets(&spec.Egress, own...), own, newID)
	if err == nil && out.wasReached() { // regardless of the guest's report
		findings = append(findings, Finding{brig.AreaEgress, brig.LevelNone, "it connected to this host"})
	}
	return findings, err
}

// probeTimeout is the maximum duration of one probe from inside.
const probeTimeout = 10 * time.Second

// runProbe runs the agent's probe inside an instance, as the user and as root.
// The findings contain none of the host's own addresses, because tenants read
// them.
func runProbe(ctx context.Context, in brig.Instance, spec brig.Spec, look wire.Look, own []netip.AddrPort, newID func() string) ([]Finding, error) {
	request, err := json.Marshal(look)
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, user := range []string{"user", "root"} {
		stdout := wire.NewHeadTail(64 * brig.KiB)
		res, err := in.Exec(ctx, newID(), brig.Command{
			Argv: []string{wire.AgentFile, wire.ProbeWord, string(request)}, User: user, Dir: "/", Timeout: probeTimeout,
		}, brig.IO{Stdout: stdout, Stderr: wire.NewHeadTail(brig.KiB)})
		if err != nil {
			return nil, err
		}
		var p wire.Posture
		if err := json.Unmarshal(stdout.Output().Head, &p); err != nil || res.ExitCode != 0 {
			return nil, fmt.Errorf("look around as %s: exit code %d: %w", user, res.ExitCode, err)
		}
		out = append(out, findingsOf(redactHost(p, own), spec.Limits, len(spec.Egress.Rules) > 0, spec.BuildRights)...)
	}
	return out, nil
}
