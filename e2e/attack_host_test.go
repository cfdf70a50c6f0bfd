package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// quoted returns s as JSON.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil { // cannot happen: strings can always be encoded
		return "null"
	}
	return string(b)
}

// connectProgram tries to connect to each of the given addresses and to send a greeting.
const connectProgram = `
import socket, sys, json
socket.setdefaulttimeout(1)
for place in json.loads(sys.argv[1]):
    try:
        if isinstance(place, str):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM); s.connect(place.replace("@", "\0", 1) if place[0] == "@" else place)
        else:
            s = socket.create_connection(tuple(place))
        s.sendall(b"GET / HTTP/1.0\r\n\r\n"); print("connected to", place)
    except Exception as e: pass
`

// TestAttackSockets verifies that a sandbox cannot connect to sockets of the host: neither to the
// server at any of the host's addresses, nor to a named or abstract Unix socket.
//
//suite:part hostile
func TestAttackSockets(t *testing.T) {
	needRoot(t)
	var arrivals atomic.Int64
	listen := func(network, at string) net.Listener {
		t.Helper()
		ln, err := net.Listen(network, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				arrivals.Add(1)
				c.Close()
			}
		}()
		return ln
	}
	dir, err := os.MkdirTemp("/var/tmp", "brig-socket-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	abstract := "@brig-canary-" + filepath.Base(dir)
	listen("unix", dir+"/socket")
	listen("unix", abstract)
	port := listen("tcp", ":0").Addr().(*net.TCPAddr).Port
	places := []any{dir + "/socket", abstract, "/proc/1/root" + dir + "/socket", "/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock"}
	places = append(places, []any{"127.0.0.1", port}, []any{"::1", port}, []any{"localhost", port}, []any{"0.0.0.0", port}, []any{"::ffff:127.0.0.1", port}, []any{"169.254.169.254", 80})
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			places = append(places, []any{n.IP.String(), port})
		}
	}
	b, err := json.Marshal(places)
	if err != nil {
		t.Fatal(err)
	}
	for _, with := range []string{"without an uplink", "with an uplink that nobody serves"} {
		p, images := newProvider(t, t.TempDir())
		m := newMachine(t, p, images, "knocks", nil)
		if strings.HasPrefix(with, "with an") {
			up, err := m.Uplink(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer up.Close()
		}
		for _, user := range []string{"user", "root"} {
			_, out, err := m.try(brig.Command{Argv: []string{"python3", "-c", connectProgram, string(b)}, User: user, Timeout: time.Minute})
			time.Sleep(100 * time.Millisecond)
			escaped := err != nil || strings.Contains(out, "connected") || arrivals.Load() > 0
			if escaped {
				t.Errorf("%s as %s: %v, %d came: %s", with, user, err, arrivals.Load(), out)
			}
			for _, place := range places {
				attack.RecordCase("ESC-06", fmt.Sprintf("connect to %v as %s, %s", strings.ReplaceAll(fmt.Sprint(place), fmt.Sprint(port), "PORT"), user, with), escaped)
			}
		}
	}
	// The control: outside of a sandbox, the same program can connect.
	out, err := exec.Command("python3", "-c", connectProgram, string(b)).CombinedOutput()
	for end := time.Now().Add(promptTimeout); arrivals.Load() < 3 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	if err != nil || arrivals.Load() < 3 {
		t.Errorf("on the host: %v, %d came: %s", err, arrivals.Load(), out)
	}
	attack.RecordMutant("ESC-06", "the same program on the host", "the sandbox", arrivals.Load() >= 3)
}

// digests returns the checksums of files of the host.
func digests(t *testing.T, names ...string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range names {
		b, err := os.ReadFile(name)
		sum := sha256.Sum256(b)
		fmt.Fprintln(&all, name, hex.EncodeToString(sum[:]), err != nil)
	}
	return all.String()
}

// overwriteProgram tries to overwrite each of the given files in several ways.
const overwriteProgram = `for f in %s; do (echo pwned > $f) 2>/dev/null; (echo pwned >> $f) 2>/dev/null; (rm -f $f && echo pwned > $f) 2>/dev/null; (mv /tmp/pwned $f) 2>/dev/null; (chmod 777 $f) 2>/dev/null; done; true`

// TestAttackOverwrite verifies that root in a sandbox cannot change the sandbox's own programs or
// settings of the host's kernel through any path that may refer to them.
//
//suite:part hostile
func TestAttackOverwrite(t *testing.T) {
	needRoot(t)
	p, images := newProvider(t, t.TempDir())
	m := newMachine(t, p, images, "writes", nil)
	programs := []string{bin(t, "brig"), bin(t, "brig-engine"), bin(t, "brig-shim"), bin(t, "brig-agent"), "/usr/bin/env", "/bin/sh", "/etc/passwd"}
	knobs := []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/kernel/panic", "/proc/sys/kernel/hotplug",
		"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/fs/suid_dumpable", "/proc/sys/kernel/yama/ptrace_scope",
		"/proc/sys/kernel/randomize_va_space", "/proc/sys/kernel/unprivileged_userns_clone", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent", "/sys/kernel/mm/transparent_hugepage/enabled",
	}
	for _, c := range []struct {
		id    string
		watch []string
		more  string
	}{
		{"ESC-08", programs, " /proc/self/exe /proc/1/exe /proc/*/exe /proc/1/root/usr/bin/env /brig-agent /.brig/* /proc/1/fd/*"},
		{"ESC-04", knobs, " /proc/sysrq-trigger /proc/kcore /proc/kmsg /dev/mem /dev/kmem /proc/irq/*/smp_affinity /proc/1/oom_score_adj"},
	} {
		before := digests(t, c.watch...)
		for _, user := range []string{"user", "root"} {
			script := fmt.Sprintf(overwriteProgram, strings.Join(c.watch, " ")+c.more)
			if c.id == "ESC-08" {
				script += `; printf '#!/proc/self/exe\n' > /tmp/loop-$$; chmod 755 /tmp/loop-$$; /tmp/loop-$$ 2>/dev/null; true`
			}
			res, out, err := m.try(brig.Command{Shell: script, User: user})
			after := digests(t, c.watch...)
			escaped := err != nil || after != before
			if escaped {
				t.Errorf("%s as %s: %+v, %v, %s\nbefore %s\nafter %s", c.id, user, res, err, out, before, after)
			}
			for _, name := range c.watch {
				attack.RecordCase(c.id, "write to "+filepath.Base(name)+" as "+user, escaped)
			}
		}
		// The control: on the host, the same script modifies a writable file.
		own := filepath.Join(t.TempDir(), "copy")
		if err := os.WriteFile(own, []byte("whole"), 0o755); err != nil {
			t.Fatal(err)
		}
		was := digests(t, own)
		err := exec.Command("/bin/sh", "-c", fmt.Sprintf(overwriteProgram, own)).Run()
		seen := err == nil && digests(t, own) != was
		if !seen {
			t.Errorf("%s: on the host nothing is seen to change: %v", c.id, err)
		}
		attack.RecordMutant(c.id, "the same script on the host, to a copy", "the sandbox", seen)
	}
	if out := newMachine(t, p, images, "next", nil).sh("user", "echo whole"); out != "whole\n" {
		t.Errorf("the next sandbox: %q", out)
	}
}

// hostFactsProgram prints all information that might identify the host.
const hostFactsProgram = `uname -a; hostname; cat /etc/machine-id /etc/hostname /proc/sys/kernel/random/boot_id /proc/version /proc/cmdline /proc/self/cgroup /proc/self/mountinfo /proc/mounts /proc/sys/kernel/hostname /proc/net/dev /proc/net/route /proc/net/arp /proc/swaps /proc/diskstats /proc/partitions /proc/modules /sys/class/dmi/id/* /sys/class/net/*/address /etc/resolv.conf /proc/self/environ 2>/dev/null; true`

// hostFacts returns facts that identify this host, by name. A sandbox must not reveal them.
func hostFacts(t *testing.T, dataDir string) map[string]string {
	t.Helper()
	facts := map[string]string{"data folder": dataDir}
	for name, file := range map[string]string{"machine id": "/etc/machine-id", "boot id": "/proc/sys/kernel/random/boot_id", "kernel": "/proc/sys/kernel/osrelease", "host name": "/proc/sys/kernel/hostname", "command line": "/proc/cmdline"} {
		if b, err := os.ReadFile(file); err == nil {
			facts[name] = strings.TrimSpace(string(b))
		}
	}
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range ifs {
		if len(i.HardwareAddr) > 0 {
			facts["address of "+i.Name] = i.HardwareAddr.String()
		}
	}
	for name, v := range facts {
		if len(v) < 6 || v == "localhost" || strings.HasPrefix(v, "00:00:00") {
			delete(facts, name) // too short or too common to be recognized
		}
	}
	return facts
}

// TestAttackFingerprint verifies that a sandbox cannot identify its host.
//
//suite:part hostile
func TestAttackFingerprint(t *testing.T) {
	needRoot(t)
	p, images := newProvider(t, t.TempDir())
	m := newMachine(t, p, images, "where", nil)
	facts := hostFacts(t, p.DataDir)
	out := m.sh("user", hostFactsProgram) + m.sh("root", hostFactsProgram)
	host, err := exec.Command("/bin/sh", "-c", hostFactsProgram).Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for name, v := range facts {
		if strings.Contains(out, v) {
			t.Errorf("it tells the host's %s: %s", name, v)
		}
		attack.RecordCase("ESC-13", name, strings.Contains(out, v))
		if strings.Contains(string(host), v) {
			attack.RecordMutant("ESC-13", name+", the same script on the host", "the sandbox", true)
			seen++
		}
	}
	if seen < 2 {
		t.Errorf("on the host the script tells %d of %v", seen, facts)
	}
}

// TestAttackTerminalInjection verifies that input that a program injects into
// its own terminal with TIOCSTI is not mistaken for input of the user. The
// control is real input, which is accepted.
//
//suite:part hostile
func TestAttackTerminalInjection(t *testing.T) {
	e, ctx := newEngine(t)
	_, ps := createWithProcesses(t, e, ctx)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	p := start(t, ctx, ps, brig.ProcessSpec{
		Command:  brig.Command{Argv: []string{"/bin/bash", "--norc", "-i"}, Env: map[string]string{"TERM": "dumb", "PS1": "> "}},
		Terminal: &brig.Terminal{Columns: 80, Rows: 24},
	})
	h, _ := listen(ctx, ps, p.PID, 0)
	say := func(s string) {
		t.Helper()
		if err := ps.WriteInput(ctx, p.PID, []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	const inject = `python3 -c "import fcntl,termios
for c in b'echo pw\$((40+2))\n':
  try: fcntl.ioctl(0, termios.TIOCSTI, bytes([c]))
  except OSError: pass"; echo en$((40+2))` + "\n"
	say(inject)
	h.until(t, "en42\r\n")
	say("echo so$((40+1))\n")
	h.until(t, "so41\r\n")
	escaped := strings.Contains(h.printed(), "pw42")
	if escaped {
		t.Errorf("what a program typed was taken: %s", h.printed())
	}
	attack.RecordCase("ESC-12", "TIOCSTI on its own terminal", escaped)
	say("echo pw$((40+2))\n")
	h.until(t, "pw42\r\n")
	attack.RecordMutant("ESC-12", "somebody types the same", "the program", strings.Contains(h.printed(), "pw42"))
}
