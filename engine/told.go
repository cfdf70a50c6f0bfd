package engine

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/brig-run/brig"
)

// tellRun writes the line about a one-shot to the log, one for each. Nobody
// waits for it; the machine is still there, to be asked what it uses.
func (e *Engine) tellRun(ctx context.Context, v *visit, m *machine, j *job, o *brig.Outcome) {
	used := int64(0)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if u, err := m.in.Usage(ctx); err == nil { // not all machines are counted
		used = u.Memory
	}
	language := "command"
	if j.lang != nil {
		language = string(j.lang.Name)
	}
	e.Log.LogAttrs(ctx, slog.LevelInfo, "run",
		slog.Time("timestamp", o.Started), slog.String("tenant_id", m.rec.Tenant), slog.String("provider", m.rec.Provider),
		slog.String("operation", v.op.Name), slog.String("instance_id", string(m.rec.ID)), slog.String("language", language),
		slog.String("code_hash", v.hash), slog.Int64("duration_ms", o.Duration.Milliseconds()), slog.String("status", status(o)),
		slog.Int("exit_code", o.ExitCode), slog.Float64("memory_used_mb", math.Round(float64(used)/float64(brig.MiB)*10)/10),
		slog.String("region", e.Region))
}

// status says in a word how a one-shot went.
func status(o *brig.Outcome) string {
	switch {
	case o.OOMKilled:
		return "out_of_memory"
	case o.TimedOut:
		return "timeout"
	case o.ExitCode != 0 || o.Error != nil:
		return "error"
	}
	return "success"
}
