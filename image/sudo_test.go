package image

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSudoScript verifies that the script says what to do, and that it runs the command if root calls
// it.
func TestSudoScript(t *testing.T) {
	dir := t.TempDir()
	sudo := filepath.Join(dir, "sudo")
	if err := os.WriteFile(sudo, []byte(sudoScript), 0o700); err != nil {
		t.Fatal(err)
	}
	id := filepath.Join(dir, "id") // the script calls it in place of the system's
	run := func(uid string, args ...string) (string, int) {
		t.Helper()
		if err := os.WriteFile(id, []byte("#!/bin/sh\necho "+uid+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", append([]string{sudo}, args...)...)
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, args := range [][]string{nil, {"true"}, {"-n", "true"}, {"-u", "root", "true"}} {
		if out, code := run("1000", args...); code != 1 || !strings.Contains(out, `user="root"`) {
			t.Errorf("%q as a user: %d %s", args, code, out)
		}
	}
	for want, args := range map[string][]string{
		"one two": {"echo", "one", "two"}, "three": {"-E", "-n", "echo", "three"}, "four": {"--", "echo", "four"},
		"five": {"X=five", "sh", "-c", "echo $X"},
	} {
		if out, code := run("0", args...); code != 0 || strings.TrimSpace(out) != want {
			t.Errorf("%q as root: %d %s", args, code, out)
		}
	}
	if out, code := run("0", "sh", "-c", "exit 3"); code != 3 {
		t.Errorf("exit 3 as root: %d %s", code, out)
	}
	for _, args := range [][]string{nil, {"-u", "user", "true"}} {
		if out, code := run("0", args...); code != 1 || !strings.Contains(out, "sudo COMMAND") {
			t.Errorf("%q as root: %d %s", args, code, out)
		}
	}
}
