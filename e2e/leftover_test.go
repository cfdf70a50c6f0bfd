package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestStoppedServersLeaveNoSandboxes verifies that the harness removes the running sandboxes in
// the data folder of a test's server. The control uses a data folder that outlives the test, as
// in tests that start several servers.
//
//suite:part core
func TestStoppedServersLeaveNoSandboxes(t *testing.T) {
	needRoot(t)
	outer := dataDir(t)
	for name, hasLeftovers := range map[string]bool{"a folder of its own": false, "the control": true} {
		dir := outer
		t.Run(name, func(t *testing.T) {
			if !hasLeftovers {
				dir = t.TempDir()
			}
			s := startServer(t, dir, "--pool", "0")
			if _, err := s.client().Create(t.Context(), brig.Spec{TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			if len(sandboxesIn(dir)) == 0 {
				t.Error("nothing runs, so nothing can be left")
			}
		})
		if available := sandboxesIn(dir); len(available) > 0 != hasLeftovers {
			t.Errorf("%s: left are %v", name, available)
		}
	}
}

// sandboxesIn lists processes whose command lines contain paths of sandboxes in a data folder,
// which may no longer exist.
func sandboxesIn(dir string) (out []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		if b, _ := os.ReadFile(name); bytes.Contains(b, []byte(dir+"/sandboxes/")) {
			out = append(out, name)
		}
	}
	return out
}
