package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// startS3 starts a real S3 server on loopback with a bucket "brig". It returns the server's
// address, its secret key, and the /proc directory of its process, which contains the key.
func startS3(t *testing.T, dir string) (addr, secret, proc string) {
	t.Helper()
	program := os.Getenv("BRIG_S3_SERVER")
	if program == "" {
		program = "/var/cache/brig-test/versitygw"
		if p, err := exec.LookPath("versitygw"); err == nil {
			program = p
		}
	}
	if _, err := os.Stat(program); err != nil {
		t.Skip("there is no S3 server here; .ci/setup makes one, or set BRIG_S3_SERVER")
	}
	addr, secret = fmt.Sprintf("127.0.0.1:%d", testenv.Port(t)), rand.Text()+rand.Text()
	if err := os.Mkdir(filepath.Join(dir, "brig"), 0o700); err != nil { // this server stores a bucket as a directory
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--port", addr, "--access", "operator", "--secret", secret, "posix", dir)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for deadline := time.Now().Add(2 * promptTimeout); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return addr, secret, fmt.Sprintf("/proc/%d/", cmd.Process.Pid)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the S3 server does not answer: %s", printed.String())
		}
	}
}

// TestWorkspaceOnS3 verifies that a sandbox has the files of its workspace in a bucket, even if a
// sandbox on another server wrote them, and that no sandbox, process or file of the server
// contains the bucket's key.
//
//suite:part workspaces
func TestWorkspaceOnS3(t *testing.T) {
	needRoot(t)
	dir, bucket := dataDir(t), t.TempDir()
	addr, secret, proc := startS3(t, bucket)
	lab := t.TempDir()
	credentials, config := filepath.Join(lab, "credentials"), filepath.Join(lab, "brig.yaml")
	text := fmt.Sprintf("workspaces: {store: s3, s3: {endpoint: %q, insecure: true, bucket: brig, prefix: one/server, region: us-east-1, credentials: %q}}\n", addr, credentials)
	for file, data := range map[string]string{credentials: "operator\n" + secret + "\n", config: text} {
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := startServer(t, dir, "--config", config)
	b := sandboxRunner{t, s.client(), t.Context()}
	w, err := b.svc.CreateWorkspace(b.ctx, "data")
	if err != nil || w.Store != "s3" {
		t.Fatalf("%+v, %v", w, err)
	}
	use := brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect}
	b.create(brig.Spec{Name: "one", Workspace: use})
	b.sh("one", makeTree)
	want := b.sh("one", sumTree)
	look := b.sh("one", "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; mount; ls -la / /workspace")
	if strings.Contains(look, secret) || strings.Contains(look, addr) || strings.Contains(look, "operator") {
		t.Errorf("the sandbox knows of the bucket: %s", look)
	}
	if _, err := b.svc.Stop(b.ctx, "one", time.Second); err != nil {
		t.Fatal(err)
	}
	// No file in the data folder and no process may contain the key.
	wantNone := func(what string, data []byte) {
		t.Helper()
		if bytes.Contains(data, []byte(secret)) && !strings.HasPrefix(what, proc) {
			t.Errorf("%s has the bucket's key", what)
		}
	}
	lookFiles(t, dir, wantNone)
	lookProcesses(t, wantNone)
	// Every object must be below the prefix of the server and the tenant.
	for name := range treeOf(t, filepath.Join(bucket, "brig")) {
		rest := strings.TrimPrefix(name, filepath.Join(bucket, "brig")+"/")
		if !strings.HasPrefix(rest, "one/server/t/") && !strings.HasPrefix(rest, ".") {
			t.Errorf("%s is outside the prefix", rest)
		}
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	next := startServer(t, dataDir(t), "--config", config)
	b.svc = next.client()
	o, err := b.svc.Run(context.WithoutCancel(b.ctx), brig.Program{Command: []string{"sh", "-c", sumTree}, Workspace: use}, brig.IO{})
	if err != nil || string(o.Stdout.Head) != want {
		t.Errorf("another server's sandbox has %s%s, %v, want %s", o.Stdout.Head, o.Stderr.Head, err, want)
	}
}
