package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/brig-run/brig"
)

// startE2BInternet starts a server whose sandboxes may connect to every address.
func startE2BInternet(t *testing.T) *e2bServer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "brig.yaml")
	if err := os.WriteFile(file, []byte("egress: {wide: true}\ne2b: {internet: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return startE2B(t, "--config", file)
}

// TestE2BRows checks what E2B's SDKs read about a sandbox, with the newest and an older version of
// the JavaScript SDK and with the Python SDK.
//
//suite:part clients full
func TestE2BRows(t *testing.T) {
	for _, module := range []string{"e2b", "e2b-older"} {
		t.Run(module, func(t *testing.T) { startE2BInternet(t).checks(t, 5, "rows.mjs", "E2B_MODULE="+module) })
	}
	t.Run("python", func(t *testing.T) { startE2BInternet(t).pythonChecks(t, 2, "rows.py") })
}

// TestE2BForkBeyondQuota checks that E2B's SDK gets the copies that the quota allows, and an error for
// each of the others.
//
//suite:part clients full
func TestE2BForkBeyondQuota(t *testing.T) {
	for _, module := range []string{"e2b", "e2b-older"} {
		t.Run(module, func(t *testing.T) {
			s := startE2B(t)
			if _, err := s.client().UpdateTenant(t.Context(), brig.Tenant{Name: "default", Quota: brig.Quota{Sandboxes: 3}}); err != nil {
				t.Fatal(err)
			}
			s.checks(t, 1, "fork.mjs", "E2B_MODULE="+module)
		})
	}
}
