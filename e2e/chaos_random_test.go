package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/chaos"
	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/store/sqlite"
)

// TestRandomKills verifies that no resource leaks and no acknowledged result is lost while
// servers, shims, sentries and interpreters are killed at random under load, like `brig-bench
// chaos`.
//
//suite:part crash
func TestRandomKills(t *testing.T) {
	needRoot(t)
	kills := testenv.Size(12, 200)
	dir, config := dataDir(t), filepath.Join(t.TempDir(), "brig.yaml")
	if err := os.WriteFile(config, []byte("pool: {size: 2, memory: 64MiB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := chaos.Run(t.Context(), chaos.Options{
		Dir: dir, Kills: kills, Seed: uint64(time.Now().UnixNano()), Say: t.Logf,
		Start: func(context.Context) (*chaos.Server, error) {
			s := startServer(t, dir, "--config", config)
			return &chaos.Server{
				PID: s.cmd.Process.Pid, Service: s.client(), Stop: s.stop,
				Kill: func() error { s.kill(); return nil },
			}, nil
		},
		Events: func(ctx context.Context) ([]brig.Event, error) {
			store, err := sqlite.Open(ctx, filepath.Join(dir, "brig.db"))
			if err != nil {
				return nil, err
			}
			defer store.Close()
			return store.Events(ctx, 1<<30)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d, killed %v; %+v; errors %v", r.Seed, r.Killed, r.Counts, r.Errors)
	t.Logf("ready again: p50 %v, p99 %v; first one-shot: p50 %v, p99 %v",
		chaos.Percentile(r.Ready, 50), chaos.Percentile(r.Ready, 99), chaos.Percentile(r.First, 50), chaos.Percentile(r.First, 99))
	// The audit log must still be one chain, regardless of which process was
	// killed while writing.
	if out, err := exec.Command(bin(t, "brig"), "--data-dir", dir, "audit", "verify").CombinedOutput(); err != nil {
		t.Errorf("brig audit verify: %v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
	if !r.IsClean() {
		t.Errorf("leaks %v, lost %v, %d events missing, unexplained %v", r.Leaks, r.Lost, r.Missing, r.Unexplained)
	}
	if r.Runs < kills/4 || r.Codes < kills || r.Sandboxes < kills/4 || r.Checked < kills {
		t.Errorf("too little happened for this test to mean anything: %+v", r.Counts)
	}
}
