package e2e

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// TestUpgradeDataFolder verifies that this version opens a data folder of an earlier release
// without data loss. The folder contains keys, tenants, secrets with their hosts, workspaces,
// ended sandboxes and runs with output and logs, and a verifiable audit log.
//
//suite:part core
func TestUpgradeDataFolder(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	extract(t, "testdata/data-8cab475.tar.gz", dir)
	s := startServer(t, dir, "--config", writeConfig(t, `
pool: {size: 0}
metrics: {trial: 0s}
audit: {keep: 876000h}
keep: {runs: 876000h, sandboxes: 876000h}
`))
	c := s.client()
	cli := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), bin(t, "brig"), append([]string{"--data-dir", dir}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("brig %v: %v: %s", args, err, out)
		}
		return string(out)
	}

	for key, want := range map[string]string{
		oldMember: `"tenant":"acme"`, oldViewer: `"role":"viewer"`,
	} {
		as := &server{t: t, url: s.url, key: key}
		if status, body := as.do(http.MethodGet, "/v1/auth/whoami", ""); status != http.StatusOK || !strings.Contains(strings.ReplaceAll(body, " ", ""), want) {
			t.Errorf("an old key: %d %s, want %s", status, body, want)
		}
	}

	secrets, err := c.Secrets(t.Context())
	if err != nil || len(secrets) != 2 {
		t.Fatalf("secrets: %v, %v", secrets, err)
	}
	for _, secret := range secrets {
		if brokered := len(secret.Hosts) == 1 && secret.Hosts[0] == "api.example.com"; brokered != (secret.Name == "gh") {
			t.Errorf("secret %s has the hosts %q", secret.Name, secret.Hosts)
		}
	}
	// The master key still decrypts the secrets: a program receives the value
	// of one secret and a placeholder for the other.
	if out := cli("run", "--secret", "plain=PLAIN", "--secret", "gh=GH", "--", "sh", "-c", "echo $PLAIN; echo $GH"); !strings.HasPrefix(out, "plainly seen\n") || strings.Contains(out, "horse") || len(out) < 20 {
		t.Errorf("values of the secrets in the sandbox: %q", out)
	}

	for version, want := range map[int]string{1: "one\n", 2: "two\n"} {
		_, body, err := c.ReadWorkspaceFile(t.Context(), "ws", version, "/workspace/d/a")
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		b, err := io.ReadAll(body)
		if body.Close(); err != nil || string(b) != want {
			t.Errorf("version %d of a file is %q, %v; want %q", version, b, err, want)
		}
	}

	box, err := c.Get(t.Context(), "box")
	if err != nil || box.Spec.Labels["team"] != "search" || box.State != brig.Ended {
		t.Errorf("the sandbox that was stopped: %+v, %v", box, err)
	}
	execs, err := c.ListExecs(t.Context(), "box")
	if err != nil || len(execs) != 2 {
		t.Fatalf("its executions: %v, %v", execs, err)
	}
	x, err := c.GetExec(t.Context(), "box", execs[1].ExecID)
	if err != nil || x.ExitCode != 3 || !strings.HasSuffix(string(x.Stdout.Head), "line 300\n") || string(x.Stderr.Head) != "err\n" {
		t.Errorf("an execution's outcome: %+v, %v", x, err)
	}
	logs, err := c.Logs(t.Context(), "box", brig.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	if b, err := io.ReadAll(logs); err != nil || !strings.Contains(string(b), "line 300\n") {
		t.Errorf("its log: %q, %v", b, err)
	}

	if out := cli("audit", "verify"); !strings.Contains(out, `"default"`) {
		t.Errorf("the audit log: %s", out)
	}
}

// Keys in the archived data folder, which are not valid on any other server.
const (
	oldMember = "brig_cjz7dd4r27gsvyxwadzh375qsl75pltb5zmys5wkllstux7swpxh"
	oldViewer = "brig_zoimy6wksu6ecekqknfo7ofr2zibypwp63yonfabzd3dgqcj24rp"
)

// extract unpacks the directories and files of an archive.
func extract(t *testing.T, name, dir string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o700)
		} else {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
