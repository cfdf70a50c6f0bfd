package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/brig-run/brig"
)

// TestUpgradeKeepsRunningSandboxes verifies that this version takes over the running sandboxes of an earlier
// release's server, with their files, logs, limits and contexts. Sandboxes keep their variables
// if the earlier release paused them, or if this version pauses them.
//
//suite:part install full
func TestUpgradeKeepsRunningSandboxes(t *testing.T) {
	needRoot(t)
	old := filepath.Join(filepath.Dir(bin(t, "brig")), "test", "brig-previous")
	if _, err := os.Stat(old); err != nil {
		t.Skip("no program of an earlier release (make previous FROM=COMMIT builds it)")
	}
	dir := dataDir(t)
	before := launchServer(t, old, nil, dir, "--pool", "0")
	before.await()
	cli := func(program string, args ...string) string {
		t.Helper()
		return output(t, program, append([]string{"--data-dir", dir}, args...)...)
	}
	cli(old, "sandbox", "create", "box", "--memory", "128MiB")
	cli(old, "sandbox", "exec", "box", "--", "sh", "-c", "echo kept > /workspace/f; echo said")
	codeIn := func(name, source string) string {
		t.Helper()
		status, body := before.do("POST", "/v1/sandboxes/"+name+"/code", `{"code":"`+source+`"}`)
		if status != 200 {
			t.Fatalf("the code %s: %d %s", source, status, body)
		}
		return body
	}
	code := func(source string) string { t.Helper(); return codeIn("box", source) }
	code("x = 41")
	cli(old, "sandbox", "create", "asleep")
	codeIn("asleep", "x = 41")
	cli(old, "sandbox", "pause", "asleep")
	was := cli(old, "--json", "sandbox", "get", "box")

	// Stop the old server with SIGTERM, like a package upgrade.
	if err := before.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = before.cmd.Wait()
	after := startServer(t, dir, "--pool", "0")
	program := bin(t, "brig")
	// The context still uses the driver of the earlier release.
	before = after
	if out := code("x + 1"); !strings.Contains(out, `"42"`) {
		t.Errorf("the variable of a context: %s", out)
	}
	if out := cli(program, "sandbox", "exec", "box", "--", "cat", "/workspace/f"); out != "kept\n" {
		t.Errorf("the file is %q", out)
	}
	if out := cli(program, "sandbox", "logs", "box"); !strings.Contains(out, "said\n") {
		t.Errorf("the log is %q", out)
	}
	box, err := after.client().Get(t.Context(), "box")
	if err != nil || box.State != brig.Running || box.Spec.Limits.Memory != 128*brig.MiB {
		t.Errorf("the sandbox is %+v, %v; it was %s", box, err, was)
	}
	if out := cli(program, "sandbox", "attest", "box"); !strings.Contains(out, "memory") {
		t.Errorf("the attestation is %q", out)
	}
	cli(program, "sandbox", "pause", "box")
	for _, name := range []string{"asleep", "box"} {
		if out := codeIn(name, "x + 1"); !strings.Contains(out, `"42"`) {
			t.Errorf("the variable of %s after a pause: %s", name, out)
		}
	}
	cli(program, "sandbox", "create", "two")
	cli(program, "sandbox", "rm", "two", "box", "asleep")
}
