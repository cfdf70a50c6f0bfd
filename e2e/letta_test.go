package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/brig-run/brig"
)

// lettaServer is a server for Letta's clients.
type lettaServer struct {
	*server
	rival string // the key of another tenant
}

func startLetta(t *testing.T, args ...string) *lettaServer {
	t.Helper()
	needRoot(t)
	s := &lettaServer{server: startServer(t, dataDir(t), args...)}
	c := s.client()
	ctx := t.Context()
	if _, err := c.CreateTenant(ctx, brig.Tenant{Name: "rival"}); err != nil {
		t.Fatal(err)
	}
	key, err := c.CreateKey(ctx, brig.KeySpec{Name: "rival", Tenant: "rival", Role: brig.Member})
	if err != nil {
		t.Fatal(err)
	}
	s.rival = key.Secret
	return s
}

// checks runs a script in the directory letta with Letta's published clients.
func (s *lettaServer) checks(t *testing.T, minChecks int, script string) {
	t.Helper()
	dir := npm(t, "letta")
	harness, err := os.ReadFile("e2b/harness.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "harness.mjs"), harness, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", script)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LETTA_BASE_URL=" + s.url, "LETTA_API_KEY=" + s.key, "LETTA_RIVAL_KEY=" + s.rival,
	}
	report(t, cmd, minChecks)
}

// TestLettaTools runs tools with Letta's clients on a server with gVisor.
//
//suite:part clients
func TestLettaTools(t *testing.T) { startLetta(t).checks(t, 13, "tools.mjs") }

// TestLettaConfigs verifies a tenant's tool configurations, variables and sandboxes.
//
//suite:part clients full
func TestLettaConfigs(t *testing.T) { startLetta(t).checks(t, 8, "configs.mjs") }

// TestLettaAttacks verifies that a tool cannot abuse the channel through which
// it returns its value.
//
//suite:part clients full
func TestLettaAttacks(t *testing.T) { startLetta(t).checks(t, 14, "attacks.mjs") }
