package engine

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/brig-run/brig"
)

// logRun writes the log line of an execution, after the response to the caller. If the instance
// still exists, the line includes its memory use.
func (g *gate) logRun(ctx context.Context, r *brig.ExecutionReport, in brig.Instance) {
	if r == nil {
		return
	}
	used := int64(0)
	if in != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if u, err := in.Usage(ctx); err == nil { // not all instances report their usage
			used = u.Memory
		}
	}
	g.Log.LogAttrs(ctx, slog.LevelInfo, "run",
		slog.Time("timestamp", r.At), slog.String("tenant_id", r.Tenant), slog.String("provider", r.Provider),
		slog.String("operation", r.Op), slog.String("instance_id", string(r.Sandbox)), slog.String("language", r.Language),
		slog.String("code_hash", r.CodeHash), slog.Int64("duration_ms", r.Duration.Milliseconds()), slog.String("status", string(r.Status)),
		slog.Int("exit_code", r.ExitCode), slog.Float64("memory_used_mb", math.Round(float64(used)/float64(brig.MiB)*10)/10),
		slog.String("region", g.Region))
}

// logRunAsync calls logRun in the background, after the call.
func (g *gate) logRunAsync(ctx context.Context, r *brig.ExecutionReport) {
	if !g.Log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	in := g.instance(r.Sandbox)
	g.background.Go(func() { g.logRun(ctx, r, in) })
}
