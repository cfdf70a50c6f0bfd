package engine

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/brig-run/brig"
)

// tellRun writes the line about an execution to the log, one for each. Nobody
// waits for it; a machine that is still there is asked what it uses.
func (e *Engine) tellRun(ctx context.Context, r *brig.Ran, in brig.Instance) {
	if r == nil {
		return
	}
	used := int64(0)
	if in != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if u, err := in.Usage(ctx); err == nil { // not all machines are counted
			used = u.Memory
		}
	}
	e.Log.LogAttrs(ctx, slog.LevelInfo, "run",
		slog.Time("timestamp", r.At), slog.String("tenant_id", r.Tenant), slog.String("provider", r.Provider),
		slog.String("operation", r.Op), slog.String("instance_id", string(r.Sandbox)), slog.String("language", r.Language),
		slog.String("code_hash", r.CodeHash), slog.Int64("duration_ms", r.Duration.Milliseconds()), slog.String("status", string(r.Status)),
		slog.Int("exit_code", r.ExitCode), slog.Float64("memory_used_mb", math.Round(float64(used)/float64(brig.MiB)*10)/10),
		slog.String("region", e.Region))
}

// tellLater is tellRun, when the call is over.
func (e *Engine) tellLater(ctx context.Context, r *brig.Ran) {
	if !e.Log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	in := e.instance(r.Sandbox)
	e.work.Go(func() { e.tellRun(ctx, r, in) })
}
