package providertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Agent builds the guest agent, for providers that bring it somewhere.
func Agent(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "brig-agent")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", file, "github.com/brig-run/brig/cmd/brig-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	return file
}
