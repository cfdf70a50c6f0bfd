package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/provider/docker"
)

// attacks verifies, from the host, that a program in a container cannot escape
// its limits. Each case has a control, in which one protection is disabled and
// the same check detects the attack.
func (l *dockerLab) attacks(t *testing.T) {
	// with returns an instance of a provider with one protection disabled.
	with := func(t *testing.T, disabled string, change func(*brig.Spec)) brig.Instance {
		t.Helper()
		p := l.provider(t, t.TempDir(), func(o *docker.Options) { o.Runtime, o.Disabled = "runc", []string{disabled} })
		_, in := l.machine(t, p, change)
		return in
	}
	t.Run("socket", func(t *testing.T) {
		reaches := func(disabled string) bool {
			out := shellIn(t, with(t, disabled, nil), "root", `python3 - <<'EOF'
import glob, os, socket, stat
found = []
for base in ("/run", "/var", "/tmp", "/.brig", "/mnt", "/home", "/root"):
    for dir, _, names in os.walk(base):
        for n in names:
            p = os.path.join(dir, n)
            try:
                if stat.S_ISSOCK(os.lstat(p).st_mode): found.append(p)
            except OSError: pass
for p in found + ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"]:
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(2)
    try:
        s.connect(p)
        s.send(b"GET /_ping HTTP/1.0\r\n\r\n")
        print(p, s.recv(12))
    except OSError: pass
EOF`)
			return strings.Contains(out, "HTTP/1.0 200")
		}
		if reaches("") {
			t.Error("the engine's socket is reached")
		}
		if !reaches("socket") {
			t.Error("the control does not reach it either")
		}
	})
	t.Run("privileges", func(t *testing.T) {
		look := func(disabled string) map[string]string {
			mark := fmt.Sprintf("47%d", time.Now().UnixNano()%1e9)
			in := with(t, disabled, nil)
			startIn(t, in, brig.Command{Argv: []string{"sleep", mark}, User: "root"})
			return hostStatus(t, "sleep", mark)
		}
		s := look("")
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if s[set] != strings.Repeat("0", 16) {
				t.Errorf("%s of a root in the sandbox is %s", set, s[set])
			}
		}
		if s["NoNewPrivs"] != "1" || s["Seccomp"] != "2" {
			t.Errorf("no-new-privileges %s, seccomp %s", s["NoNewPrivs"], s["Seccomp"])
		}
		if s := look("capabilities"); s["CapBnd"] == strings.Repeat("0", 16) {
			t.Errorf("the control sees no capability: %v", s)
		}
		if s := look("no-new-privileges"); s["NoNewPrivs"] != "0" {
			t.Errorf("the control sees no-new-privileges %s", s["NoNewPrivs"])
		}
	})
	t.Run("network", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("host\n"))
				c.Close()
			}
		}()
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		ask := "exec 3<>/dev/tcp/127.0.0.1/" + port + " && cat <&3; cut -d: -f1 /proc/net/dev"
		if out := shellIn(t, with(t, "", nil), "root", ask); strings.Contains(out, "host\n") || strings.Contains(out, "eth") {
			t.Errorf("a program sees %q", out)
		}
		if out := shellIn(t, with(t, "network", nil), "root", ask); !strings.Contains(out, "host\n") {
			t.Errorf("the control sees %q", out)
		}
	})
	t.Run("processes", func(t *testing.T) {
		const limit, want = 64, 400
		few := func(s *brig.Spec) { s.Limits.Processes = limit }
		bomb := func(disabled string) (tasks int) {
			in := with(t, disabled, few)
			mark := fmt.Sprintf("48%d", time.Now().UnixNano()%1e9)
			startIn(t, in, brig.Command{Shell: fmt.Sprintf("for i in $(seq %d); do sleep %s & done 2>/dev/null; wait", want, mark)})
			for end := time.Now().Add(2 * promptTimeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				n := len(hostPIDs("sleep", mark))
				if n == tasks && n > 30 {
					break
				}
				tasks = n
			}
			// The exhausted process limit must not affect the agent.
			if _, err := in.Files().Stat(t.Context(), brig.Path{Name: "/etc/passwd"}); err != nil {
				t.Errorf("agent with %d processes: %v", tasks, err)
			}
			return tasks
		}
		if n := bomb(""); n < 30 || n > limit+64 {
			t.Errorf("%d processes on the host, and %d may be", n, limit)
		}
		if n := bomb("pids"); n < want-10 {
			t.Errorf("the control has %d processes", n)
		}
	})
	t.Run("memory", func(t *testing.T) {
		small := func(s *brig.Spec) { s.Limits.Memory = 64 * brig.MiB }
		eat := func(in brig.Instance) (*brig.Result, error) {
			var out, errs bytes.Buffer
			return in.Exec(t.Context(), "eat", brig.Command{Argv: []string{"python3", "-c", "x = bytearray(200 << 20); print(len(x))"}, Timeout: 30 * time.Second}, brig.IO{Stdout: &out, Stderr: &errs})
		}
		in := with(t, "", small)
		res, err := eat(in)
		if err != nil || !res.OOMKilled || res.ExitCode != 137 {
			t.Errorf("it ended with %+v, %v", res, err)
		}
		<-in.Done()
		if e := in.Exit(); !e.OOMKilled || e.Reason != brig.OutOfMem {
			t.Errorf("the machine ended with %+v", e)
		}
		// A process that kills itself must not be reported as out of memory,
		// even near the limit.
		in = with(t, "", small)
		for _, text := range []string{"kill -9 $$", "head -c 40000000 /dev/zero > /tmp/f; cat /tmp/f > /dev/null; kill -9 $$"} {
			var out, errs bytes.Buffer
			res, err := in.Exec(t.Context(), "self"+strconv.Itoa(len(text)), brig.Command{Shell: text, Timeout: 30 * time.Second}, brig.IO{Stdout: &out, Stderr: &errs})
			if err != nil || res.OOMKilled || res.Signal != "SIGKILL" {
				t.Errorf("%q: %+v, %v", text, res, err)
			}
		}
		if res, err := eat(with(t, "memory", small)); err != nil || res.ExitCode != 0 || res.OOMKilled {
			t.Errorf("the control ended with %+v, %v", res, err)
		}
	})
	t.Run("disk", func(t *testing.T) {
		fill := `for d in /workspace /home/user /var/tmp /etc /usr /opt /; do head -c 90000000 /dev/zero > $d/full 2>/dev/null; stat -c %s $d/full 2>/dev/null; done | paste -sd+ | bc 2>/dev/null || true; du -xsb /workspace/full /home/user/full /var/tmp/full 2>/dev/null | cut -f1; ls /etc/full /opt/full /full 2>/dev/null | wc -l`
		small := func(s *brig.Spec) { s.Limits.Disk = 16 * brig.MiB }
		out := strings.Fields(shellIn(t, with(t, "", small), "root", fill))
		total := 0
		for _, f := range out[:len(out)-1] {
			n, _ := strconv.Atoi(f)
			total += n
		}
		if len(out) < 2 || total > 16<<20 || total < 8<<20 || out[len(out)-1] != "0" {
			t.Errorf("files of %d bytes, %v", total, out)
		}
		out = strings.Fields(shellIn(t, with(t, "read-only", small), "root", fill))
		if out[len(out)-1] == "0" {
			t.Errorf("the control writes nothing either: %v", out)
		}
	})
	t.Run("agent", func(t *testing.T) { l.attackAgent(t, with(t, "", nil), with(t, "capabilities", nil)) })
	t.Run("kernel", func(t *testing.T) {
		tries := `mount -t tmpfs none /mnt 2>/dev/null && echo mount
unshare -Ur true 2>/dev/null && echo userns
mknod /tmp/sda b 8 0 2>/dev/null && echo mknod
echo x > /proc/sysrq-trigger 2>/dev/null && echo sysrq
echo 1 > /proc/sys/kernel/panic 2>/dev/null && echo sysctl
chroot / true 2>/dev/null && echo chroot
date -s 2001-01-01 >/dev/null 2>&1 && echo clock
mkdir /sys/fs/cgroup/memory/x 2>/dev/null && echo cgroup
dmesg 2>/dev/null | head -n 1 | grep -q . && echo dmesg
python3 -c 'import ctypes; raise SystemExit(ctypes.CDLL(None).syscall(250, 0) == -1)' && echo keyctl
true`
		for _, user := range []string{"user", "root"} {
			out := shellIn(t, with(t, "", nil), user, tries)
			attack.RecordCase("ESC-02", "changes of the kernel from a container, as "+user, out != "")
			if out != "" {
				t.Errorf("as %s: %q", user, out)
			}
		}
		if out := shellIn(t, with(t, "capabilities", nil), "root", tries); !strings.Contains(out, "chroot") && !strings.Contains(out, "mknod") && !strings.Contains(out, "mount") {
			t.Errorf("the control does nothing either: %q", out)
		}
	})
}

// attackAgent tries to read, kill, overwrite and connect to the agent.
func (l *dockerLab) attackAgent(t *testing.T, in, control brig.Instance) {
	const tries = `kill -9 1 2>/dev/null && echo killed
for f in mem environ maps; do head -c 1 /proc/1/$f >/dev/null 2>&1 && echo read $f; done
: > /.brig/x 2>/dev/null && echo wrote
: > /.brig/agent 2>/dev/null && echo overwrote
python3 - <<'EOF'
import socket, json, struct
call = json.dumps({"Version": 1, "Op": "ping"}).encode()
frame = bytes([1]) + struct.pack(">I", len(call)) + call
def mux(t, n, p=b""): return bytes([t]) + struct.pack(">II", 1, n) + p
s = socket.socket(socket.AF_UNIX)
s.settimeout(3)
s.connect("\0brig-agent")
try:
    s.send(mux(1, 0) + mux(2, len(frame), frame))
    if s.recv(64): print("answered")
except OSError: pass
EOF
true`
	for _, user := range []string{"user", "root"} {
		if out := shellIn(t, in, user, tries); out != "" {
			t.Errorf("as %s: %q", user, out)
		}
	}
	if out := shellIn(t, in, "user", "echo alive"); out != "alive\n" {
		t.Errorf("afterwards it says %q", out)
	}
	// Root can do this if it has the capabilities that the agent drops.
	if out := shellIn(t, control, "root", tries); !strings.Contains(out, "read") {
		t.Errorf("the control does nothing either: %q", out)
	}
}

// shellIn runs a script in an instance and returns its output.
func shellIn(t *testing.T, in brig.Instance, user, script string) string {
	t.Helper()
	var out, errs bytes.Buffer
	id := fmt.Sprintf("sh%d", time.Now().UnixNano())
	res, err := in.Exec(t.Context(), id, brig.Command{Argv: []string{"/bin/bash", "-c", script}, User: user, Dir: "/tmp", Timeout: 60 * time.Second}, brig.IO{Stdout: &out, Stderr: &errs})
	if err != nil || res.ExitCode == 124 {
		t.Fatalf("%.60q: %+v, %v, %s", script, res, err, &errs)
	}
	return out.String()
}

// startIn starts a command in an instance that runs until the instance ends.
func startIn(t *testing.T, in brig.Instance, cmd brig.Command) {
	t.Helper()
	p, err := in.Start(t.Context(), fmt.Sprintf("bg%d", time.Now().UnixNano()), cmd, brig.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
}

// hostPIDs returns the PIDs on the host of the processes with these arguments.
func hostPIDs(argv ...string) (out []string) {
	want := strings.Join(argv, "\x00") + "\x00"
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if b, err := os.ReadFile(d + "/cmdline"); err == nil && string(b) == want {
			out = append(out, d)
		}
	}
	return out
}

// hostStatus returns the status in the host's /proc of the only process with these arguments.
func hostStatus(t *testing.T, argv ...string) map[string]string {
	t.Helper()
	for end := time.Now().Add(promptTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		pids := hostPIDs(argv...)
		if len(pids) != 1 {
			continue
		}
		b, err := os.ReadFile(pids[0] + "/status")
		if err != nil {
			continue
		}
		out := map[string]string{}
		for line := range strings.Lines(string(b)) {
			k, v, _ := strings.Cut(line, ":")
			out[k] = strings.TrimSpace(v)
		}
		return out
	}
	t.Fatalf("the host does not see %q", argv)
	return nil
}
