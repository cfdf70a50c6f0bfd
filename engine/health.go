package engine

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
)

// healthCheckTimeout is the maximum duration of a health check.
const healthCheckTimeout = 30 * time.Second

// runHealthChecks periodically runs a program in a fresh sandbox of the host
// image, so that a broken provider is detected before a caller needs it. It
// skips a check while callers wait for instances, because their calls exercise
// the provider.
func (rs *runs) runHealthChecks() {
	if rs.HealthCheckInterval <= 0 || rs.providers.builtin() == nil {
		return
	}
	rs.runEvery(rs.HealthCheckInterval, func() {
		if rs.capacity.HasWaiters() || rs.capacity.CheckRoom() != nil {
			return
		}
		backend := rs.providers.builtin()
		begin := time.Now()
		err := rs.checkHealth(rs.ctx, backend)
		if rs.ctx.Err() != nil {
			return
		}
		if err != nil {
			rs.Log.Error("a health check of a provider failed", "provider", backend.ID, "err", err)
		}
		rs.Observer.ProviderTested(backend.ID, time.Since(begin), err)
	})
}

// checkHealth creates an instance, runs a command in it and destroys it. Like a pooled instance,
// the instance has no record, because it ends with this server.
func (rs *runs) checkHealth(ctx context.Context, backend *placement.Backend) (err error) {
	ctx, cancel := context.WithTimeout(ctx, healthCheckTimeout)
	defer cancel()
	limits, err := rs.LimitRange.Fill(brig.Limits{})
	if err != nil {
		return err
	}
	img, err := rs.images.resolveImage(ctx, brig.HostImage)
	if err != nil {
		return err
	}
	id, begin := newID(), time.Now()
	spec := brig.Spec{Name: newName("trial-"), Image: img.Digest, Limits: limits, Ephemeral: true, Blank: true, TTL: 2 * healthCheckTimeout}
	in, err := backend.Provider.Create(ctx, id, spec, rs.Now().Add(2*healthCheckTimeout))
	if rs.reportCreation(backend.ID, brig.MadeTrial, begin, err); err != nil {
		return err
	}
	defer rs.machines.destroyInstance(ctx, id, in)
	var out bytes.Buffer
	cmd := brig.Command{Argv: []string{"echo", string(id)}, Dir: "/", Timeout: healthCheckTimeout / 2}
	res, err := in.Exec(ctx, newExecID(), cmd, brig.IO{Stdout: &out, Stderr: &out})
	switch {
	case err != nil:
		return err
	case res.ExitCode != 0 || strings.TrimSpace(out.String()) != string(id):
		return fmt.Errorf("echo exits with %d and says %q", res.ExitCode, brig.Clip(out.String(), 80))
	}
	return nil
}
