package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// unprivilegedID is the ID of a user that only this test process uses. It is in the range that
// systemd reserves for units, so it is not the ID of an account. It depends on the process ID, so
// that concurrent test runs use different users.
var unprivilegedID = uint32(61_184 + os.Getpid()%4_000)

// unprivilegedUser is an unprivileged user with a brig binary and a data folder.
type unprivilegedUser struct {
	t            *testing.T
	home, binary string
}

// newUnprivilegedUser creates the user's home directory. If the host does not allow such a user
// to create sandboxes, it verifies that `brig doctor` reports the reason, and ends the test.
func newUnprivilegedUser(t *testing.T) *unprivilegedUser {
	t.Helper()
	needRoot(t) // to switch to another user
	// Do not use the test's own directory, because on some hosts its parents
	// are accessible only to root.
	home, err := os.MkdirTemp("", "brig-rootless-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chown(home, int(unprivilegedID), int(unprivilegedID)); err != nil {
		t.Fatal(err)
	}
	p := &unprivilegedUser{t: t, home: home, binary: filepath.Join(home, "brig")}
	from, err := os.Open(bin(t, "brig"))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(p.binary, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Chmod(0o755), to.Close()); err != nil {
		t.Fatal(err)
	}
	out, errs, code := p.brig("--json", "doctor")
	if code == 0 {
		return p
	}
	var resp struct {
		Findings []struct{ Name, State, Detail, Fix string }
	}
	if err := json.Unmarshal([]byte(out), &resp); err != nil {
		t.Fatalf("doctor: %v: %s%s", err, out, errs)
	}
	for _, f := range resp.Findings {
		if f.Name == "user namespaces" && f.State == "fail" {
			if f.Detail == "" || f.Fix == "" {
				t.Fatalf("doctor says neither what forbids it nor what to do: %+v", f)
			}
			t.Skipf("this machine forbids it: %s; fix: %s", f.Detail, f.Fix)
		}
	}
	t.Fatalf("doctor fails and does not say that user namespaces are why: %s", out)
	return nil
}

// command returns a command that runs as the user.
func (p *unprivilegedUser) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.binary, args...)
	cmd.Dir = p.home
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + p.home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivilegedID, Gid: unprivilegedID}}
	return cmd
}

// brig runs a brig command as the user, and returns its output and exit code.
func (p *unprivilegedUser) brig(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd := p.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	guard := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	_ = cmd.Wait()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// checkNothingLeft fails the test if processes or sandboxes of the user do not end in time.
func (p *unprivilegedUser) checkNothingLeft() {
	p.t.Helper()
	var remaining []string
	for deadline := time.Now().Add(tracesTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		remaining = nil
		all, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			p.t.Fatal(err)
		}
		for _, d := range all {
			st, err := os.Stat(d)
			if err != nil {
				continue
			}
			if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Uid == unprivilegedID && !isAwaitingInit(d) {
				b, _ := os.ReadFile(d + "/cmdline")
				remaining = append(remaining, fmt.Sprintf("%s %.100q", d, b))
			}
		}
		remaining = append(remaining, traces(p.t, p.home)...)
		if len(remaining) == 0 {
			return
		}
	}
	p.t.Errorf("left:\n%s", strings.Join(remaining, "\n"))
}

// isAwaitingInit reports whether a process and its parent have ended, so that the
// host's init must reap it, which may take a while.
func isAwaitingInit(dir string) bool {
	b, _ := os.ReadFile(dir + "/stat")
	_, rest, _ := strings.Cut(string(b), ") ") // the fields after the process name
	fields := strings.Fields(rest)
	return len(fields) > 1 && fields[0] == "Z" && fields[1] == "1"
}

// TestRootless verifies that an unprivileged user can run programs in gVisor, with the same
// results as root, and that no resources remain.
//
//suite:part install with=rootless
func TestRootless(t *testing.T) {
	p := newUnprivilegedUser(t)
	for what, c := range map[string]struct {
		args      []string
		out, errs string
		code      int
	}{
		"code":      {[]string{"-c", "print(6*7)"}, "42\n", "", 0},
		"kernel":    {[]string{"--", "/bin/sh", "-c", "dmesg | grep -c -i gvisor"}, "1\n", "", 0},
		"users":     {[]string{"--", "/bin/sh", "-c", "id -u; id -un; touch /workspace/f && ls /workspace"}, "1000\nuser\nf\n", "", 0},
		"root":      {[]string{"--user", "root", "--", "/bin/sh", "-c", "id -u; grep CapEff /proc/self/status"}, "0\nCapEff:\t0000000000000000\n", "", 0},
		"exit code": {[]string{"--", "/bin/sh", "-c", "exit 7"}, "", "", 7},
		"timeout":   {[]string{"--timeout", "1s", "--", "/bin/sh", "-c", "trap '' TERM; echo begun; setsid sleep 600 & sleep 600"}, "begun\n", "SB005", 124},
		"memory":    {[]string{"--memory", "128MiB", "-c", "print('begun', flush=True)\nimport time; time.sleep(0.3)\nx=[]\nwhile True: x.append(b'x'*(1<<20))"}, "begun\n", "SB006", 137},
		"no memory": {[]string{"--memory", "128MiB", "--", "/bin/sh", "-c", "kill -9 $$"}, "", "", 137},
		"disk":      {[]string{"--disk", "16MiB", "--", "/bin/sh", "-c", "head -c 100M /dev/zero > f || stat -c %s f | cut -c1-2"}, "16\n", "No space left", 0},
	} {
		t.Run(what, func(t *testing.T) {
			out, errs, code := p.brig(append([]string{"run"}, c.args...)...)
			if out != c.out || code != c.code || !strings.Contains(errs, c.errs) || c.errs == "" && errs != "" {
				t.Errorf("exit code %d, want %d; stdout %q, want %q; stderr %q, want %q in it", code, c.code, out, c.out, errs, c.errs)
			}
			p.checkNothingLeft()
		})
	}
}

// TestRootlessKill verifies that no processes or sandboxes remain if the brig command of an
// unprivileged user is killed.
//
//suite:part install with=rootless
func TestRootlessKill(t *testing.T) {
	p := newUnprivilegedUser(t)
	cmd := p.command("run", "--", "sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun(t, p.home)
	time.Sleep(200 * time.Millisecond)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	p.checkNothingLeft()
}

// TestRootlessServer verifies the life cycle of a sandbox on an unprivileged user's server, which
// is killed and restarted in between.
//
//suite:part install with=rootless
func TestRootlessServer(t *testing.T) {
	p := newUnprivilegedUser(t)
	serve := func() (end func()) {
		cmd := p.command("serve", "--listen", "127.0.0.1:0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(p.home, ".local/share/brig/server.json")
		for deadline := time.Now().Add(2 * promptTimeout); ; time.Sleep(20 * time.Millisecond) {
			b, _ := os.ReadFile(file)
			if strings.Contains(string(b), fmt.Sprintf(`"pid":%d}`, cmd.Process.Pid)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the server does not come up")
			}
		}
		end = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
		t.Cleanup(end)
		return end
	}
	say := func(want string, args ...string) {
		t.Helper()
		if out, errs, code := p.brig(args...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%v: exit code %d, stdout %q, want %q in it; stderr %q", args, code, out, want, errs)
		}
	}
	end := serve()
	say("", "sandbox", "create", "box")
	say("", "sandbox", "exec", "box", "--", "/bin/sh", "-c", "echo kept > f")
	end()
	end = serve()
	say("kept", "sandbox", "exec", "box", "--", "cat", "f")
	say("", "sandbox", "rm", "box")
	end()
	p.checkNothingLeft()
}
