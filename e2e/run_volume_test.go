package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

// TestRunMountsVolumes verifies on the command line that runs share files through a volume, with a
// server and without one, and that a copy of a sandbox can have other volumes.
//
//suite:part core
func TestRunMountsVolumes(t *testing.T) {
	needVolumes(t)
	dir := dataDir(t)
	brigCommand(t, dir, "volume", "create", "data", "--size", "32MiB")
	write := func(text string) {
		t.Helper()
		brigCommand(t, dir, "run", "--volume", "data:/data", "--", "sh", "-c", "echo "+text+" >> /data/log")
	}
	wantRead := func(want string) {
		t.Helper()
		if got := brigCommand(t, dir, "run", "-v", "data:/data:ro", "-c", `print(open("/data/log").read(), end="")`); got != want {
			t.Errorf("a run reads %q, want %q", got, want)
		}
	}
	wantError := func(want string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), bin(t, "brig"), append([]string{"--data-dir", dir}, args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v, want %q in %s", args, err, want, out)
		}
	}
	write("one")
	wantRead("one\n")
	wantError("Read-only", "run", "--volume", "data:/data:ro", "touch", "/data/log")

	startServer(t, dir)
	write("two")
	wantRead("one\ntwo\n")
	wantError("--volume", "run", "--volume", "none:/data", "true")
	wantError("--volume", "run", "--volume", "data:/proc/data", "true")
	wantError("--volume", "run", "--volume", "data", "true")

	brigCommand(t, dir, "sandbox", "create", "one")
	wantError("--volume", "sandbox", "fork", "one", "--volume", "data:/data")
	wantError("--user", "sandbox", "fork", "one", "--user", "no such user")
	brigCommand(t, dir, "sandbox", "pause", "one", "--files-only")
	brigCommand(t, dir, "sandbox", "fork", "one", "--name", "two", "--volume", "data:/data", "--user", "root", "--cwd", "/data", "--memory", "256MiB")
	if got := brigCommand(t, dir, "sandbox", "exec", "two", "--", "sh", "-c", "id -un; cat log"); got != "root\none\ntwo\n" {
		t.Errorf("the copy prints %q", got)
	}
	brigCommand(t, dir, "sandbox", "rm", "one", "two")
	brigCommand(t, dir, "volume", "rm", "data", "--yes")
}
