package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// TestSetupBuildsE2BTemplates verifies that brig setup builds the templates that E2B clients
// expect.
//
//suite:part clients full
func TestSetupBuildsE2BTemplates(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		t.Fatal("needs mmdebstrap")
	}
	dir := dataDir(t)
	for _, want := range []string{"sha256:", "base exists already"} {
		out, err := exec.CommandContext(t.Context(), bin(t, "brig"), "setup", "base", "--data-dir", dir).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("setup: %v: %s, want %q", err, out, want)
		}
	}
	srv := startServer(t, dir)
	key, err := os.ReadFile(filepath.Join(dir, "e2b.key"))
	if err != nil {
		t.Fatal(err)
	}
	s := &e2bServer{srv, []string{"E2B_API_KEY=" + strings.TrimSpace(string(key))}}
	for template, want := range map[string]string{"base": "base", "code-interpreter-v1": brig.HostImage} {
		var box struct{ SandboxID, TemplateID string }
		s.call(t, http.MethodPost, "/v2/sandboxes", map[string]any{"templateID": template}, &box)
		made, err := srv.client().Get(t.Context(), box.SandboxID)
		if err != nil || made.Spec.Image != want || box.TemplateID != template {
			t.Errorf("%s: made of %+v, %v", template, made, err)
			continue
		}
		defer s.call(t, http.MethodDelete, "/sandboxes/"+box.SandboxID, nil, nil)
		if template != "base" {
			continue
		}
		res, err := srv.client().Exec(t.Context(), box.SandboxID, brig.Command{
			Shell: "node -e 'console.log(6*7)' && git --version && python3 -c 'import ssl' && curl --version | head -n 1 && ls /etc/debian_version && pip --version && npm --version && grep -q ^URIs: /etc/apt/sources.list.d/debian.sources && pgrep -c . && ss -V && sudo true 2>&1 | grep 'user=.root.'",
		}, brig.IO{})
		if err != nil || res.ExitCode != 0 {
			t.Errorf("base lacks something: %v, %d: %s%s", err, res.ExitCode, res.Stdout.Head, res.Stderr.Head)
		}
	}
}
