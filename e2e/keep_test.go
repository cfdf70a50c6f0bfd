package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// diskUsed returns the disk usage of a directory as du would report it.
func diskUsed(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // removed during the walk
		}
		if err != nil {
			return err
		}
		if info, err := d.Info(); err == nil {
			sum += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestOutputsAreLimitedOnDisk verifies that the size of the data folder is bounded while a member
// produces output as fast as possible. The control is a server that is configured to keep almost
// all outputs.
//
//suite:part crash
func TestOutputsAreLimitedOnDisk(t *testing.T) {
	const (
		each    = 900_000
		workers = 4
		bound   = 8 << 20
	)
	rounds := testenv.Size(16, 40) // the control must produce more output than the limit allows
	for name, bounded := range map[string]bool{"bounded": true, "control": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			keep := bound
			if !bounded {
				keep = 1 << 40
			}
			config := filepath.Join(t.TempDir(), "brig.yaml")
			text := fmt.Sprintf("keep: {bytes: %d, outputs: 100000}\n", keep)
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := startServer(t, dir, "--pool", "-1", "--config", config)
			svc, ctx := s.client(), t.Context()
			if _, err := svc.Create(ctx, brig.Spec{Name: "loud", TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			empty, peak := diskUsed(t, dir), int64(0)
			var work sync.WaitGroup
			var mu sync.Mutex // guards most and last
			var last string
			for range workers {
				work.Go(func() {
					for range rounds {
						res, err := svc.Exec(ctx, "loud", brig.Command{Shell: fmt.Sprintf("head -c %d /dev/urandom", each)}, brig.IO{})
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						peak, last = max(peak, diskUsed(t, dir)-empty), res.ExecID
						mu.Unlock()
					}
				})
			}
			work.Wait()
			t.Logf("%d MiB of output took at most %d KiB of the data folder", workers*rounds*each>>20, peak>>10)
			// The tolerance covers the sandbox's log, which has two files of 8 MiB, and one
			// output in flight per worker.
			if within := peak <= bound+(16<<20)+workers*each*2+(4<<20); within != bounded {
				t.Errorf("the maximum disk usage is %d bytes", peak)
			}
			x, err := svc.GetExec(ctx, "loud", last)
			if err != nil || x.Stdout.Total != each || len(x.Stdout.Head)+len(x.Stdout.Tail) != each {
				t.Errorf("the last execution's output: %v", err)
			}
			if err := svc.Remove(ctx, "loud"); err != nil {
				t.Fatal(err)
			}
			remaining := diskUsed(t, dir) - empty
			t.Logf("%d KiB are left after the sandbox was removed", remaining>>10)
			if remaining > 4<<20 {
				t.Errorf("%d bytes are left after the sandbox was removed", remaining)
			}
		})
	}
}
