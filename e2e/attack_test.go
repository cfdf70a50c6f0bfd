package e2e

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/internal/attack"
)

// plantCanary writes 32 random bytes, encoded in hexadecimal, to a file of the host, and returns
// the text.
func plantCanary(t *testing.T, name string, mode os.FileMode) string {
	t.Helper()
	var b [32]byte
	_, _ = rand.Read(b[:])
	secret := hex.EncodeToString(b[:])
	if err := os.WriteFile(name, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
	return secret
}

// TestAttackCanary verifies that a program of any user cannot read files of the host in any known
// way, neither a file that only root may read nor a world-readable file.
//
//suite:part hostile
func TestAttackCanary(t *testing.T) {
	needRoot(t)
	dir, err := os.MkdirTemp("/var/tmp", "brig-canary-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	closed, open := filepath.Join(dir, "closed"), filepath.Join(dir, "open")
	secrets := []string{plantCanary(t, closed, 0o600), plantCanary(t, open, 0o644)}
	p, images := newProvider(t, t.TempDir())
	m := newMachine(t, p, images, "canary", nil)
	for _, user := range []string{"user", "root"} {
		// Try the file's path, and paths through the data folder next to the
		// image.
		out := m.sh(user, strings.Join([]string{probe, "canary", closed, open, "/order.json", p.DataDir + "/sandboxes/canary/order.json"}, " "))
		if !strings.Contains(out, "tried ") {
			t.Errorf("as %s the probe did not get through: %s", user, out)
		}
		for i, s := range secrets {
			if strings.Contains(out, s) {
				t.Errorf("as %s it reads the host: %s", user, out)
			}
			attack.RecordCase("ESC-07", fmt.Sprintf("canary %d as %s, by every path there is", i, user), strings.Contains(out, s))
		}
		some := strings.Contains(out, "read ") || strings.Contains(out, "opened by handle")
		if some {
			t.Errorf("as %s it reads something: %s", user, out)
		}
		attack.RecordCase("ESC-07", "files by handles, the order, as "+user, some)
	}
	// The control: the probe finds a readable file.
	inside := m.sh("user", "printf %s "+secrets[0]+" > /tmp/planted; "+probe+" canary /tmp/planted")
	if !strings.Contains(inside, secrets[0]) {
		t.Errorf("the probe overlooks a file that it may read: %s", inside)
	}
	attack.RecordMutant("ESC-07", "a canary inside", "the wall", strings.Contains(inside, secrets[0]))
	if logs, err := os.ReadFile(filepath.Join(m.dir, "log")); err == nil && strings.Contains(string(logs), secrets[1]) {
		t.Error("the canary is in the sandbox's log")
	}
}

// TestAttackAgent verifies that a program of any user cannot end, stop, trace
// or disconnect the agent.
//
//suite:part hostile
func TestAttackAgent(t *testing.T) {
	needRoot(t)
	p, images := newProvider(t, t.TempDir())
	m := newMachine(t, p, images, "agent", nil)
	for _, user := range []string{"user", "root"} {
		for _, script := range []string{
			"kill -9 1", "kill -STOP 1", "kill -TERM 1", "kill -9 -1", "echo x > /proc/1/mem", "cat /proc/1/environ",
			"echo 1000 > /proc/1/oom_score_adj", "python3 -c 'import ctypes; exit(0 if ctypes.CDLL(None).ptrace(16,1,0,0) == 0 else 1)'",
		} {
			res, out, err := m.try(brig.Command{Shell: script, User: user})
			escaped := err != nil || res.ExitCode == 0 && !strings.HasSuffix(script, "oom_score_adj")
			if escaped {
				t.Errorf("as %s, %q: %+v, %v: %s", user, script, res, err, out)
			}
			attack.RecordCase("ESC-11", script+" as "+user, escaped)
		}
		m.sh(user, probe+" flood")
		out := m.sh(user, "echo alive")
		if out != "alive\n" {
			t.Errorf("after the flood of %s: %q", user, out)
		}
		attack.RecordCase("ESC-11", "every signal for a second, as "+user, out != "alive\n")
	}
	select {
	case <-m.Done():
		t.Errorf("the sandbox has ended: %+v", m.Exit())
	default:
	}
}

// TestAttackKilledAgent verifies that killing an agent ends only its own
// sandbox: the provider detects it, reports the reason, and leaves no resources
// on the host.
//
//suite:part hostile
func TestAttackKilledAgent(t *testing.T) {
	needRoot(t)
	attack.Case(t, "GST-05", "an agent that is killed")
	attack.Mutant(t, "ESC-11", "kill -9 1 as root", "no capabilities")
	p, images := newProvider(t, t.TempDir(), "capabilities") // without this protection, root can kill the agent
	m := newMachine(t, p, images, "victim", nil)
	neighbour := newMachine(t, p, images, "neighbour", nil)
	attack.RecordMutant("GST-05", "traces of a sandbox that lives", "its end", len(m.traces()) > 0)
	start := time.Now()
	_, _, err := m.try(brig.Command{Shell: "kill -9 1; sleep 20", User: "root"})
	if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), string(brig.Crashed)) || time.Since(start) > promptTimeout {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	select {
	case <-m.Done():
		if e := m.Exit(); e.Reason != brig.Crashed || e.OOMKilled {
			t.Errorf("exit: %+v", e)
		}
	case <-time.After(promptTimeout):
		t.Error("the provider does not notice")
	}
	if out := neighbour.sh("user", "echo fine"); out != "fine\n" {
		t.Errorf("the neighbour: %q", out)
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	m.checkNoTraces()
}

// TestAttackStoppedAgent verifies that the provider detects a stopped agent
// when the next command's timeout expires, and then ends the sandbox.
//
//suite:part hostile waits
func TestAttackStoppedAgent(t *testing.T) {
	needRoot(t)
	attack.Case(t, "GST-05", "an agent that is stopped")
	p, images := newProvider(t, t.TempDir(), "capabilities")
	m := newMachine(t, p, images, "stopped", nil)
	start := time.Now()
	res, _, err := m.try(brig.Command{Shell: "kill -STOP 1; sleep 20", User: "root", Timeout: time.Second})
	if err != nil || !res.TimedOut || res.ExitCode != 124 || time.Since(start) > guest.AgentTimeout+promptTimeout {
		t.Errorf("after %v: %+v, %v", time.Since(start), res, err)
	}
	select {
	case <-m.Done():
		if e := m.Exit(); e.Reason != brig.AgentLost {
			t.Errorf("exit: %+v", e)
		}
	case <-time.After(promptTimeout):
		t.Error("the sandbox lives on")
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	m.checkNoTraces()
}

// sentry returns the host PID of the machine's sentry, or 0.
func (m *machine) sentry() int {
	for _, pid := range m.pids() {
		if role(pid) == "sentry" {
			return pid
		}
	}
	return 0
}

// threads counts the threads of all host processes of the machine.
func (m *machine) threads() int {
	n := 0
	for _, pid := range m.pids() {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		n += len(tasks)
	}
	return n
}
