package e2e

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// forks is a program that tries n times to start a process beyond the limit.
const forks = `python3 -c "
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
left, kids = %d, []
while left:
    try:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        kids.append(pid)
    except BlockingIOError:
        left -= 1
for pid in kids: os.kill(pid, 9)
"`

// connects is a program that tries to open n connections of each kind to an outside address.
const connects = `python3 -c "
import errno, socket
for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
    for _ in range(%d):
        with socket.socket(socket.AF_INET, kind) as s:
            assert s.connect_ex(('203.0.113.5', 443)) == errno.ENETUNREACH
for _ in range(%[1]d):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try: s.sendto(b'x', ('203.0.113.5', 53)); assert 0
        except OSError as e: assert e.errno == errno.ENETUNREACH
"`

// TestRefusalsAreCounted verifies that the sentry counts every refusal, but no successful calls
// and no other failures, and that programs cannot change the counts. The counts outlive the
// sandbox. The control is a sandbox without counters.
//
//suite:part hostile
func TestRefusalsAreCounted(t *testing.T) {
	needRoot(t)
	attack.Case(t, "RES-01", "a fork bomb leaves a count")
	p, images := newProvider(t, t.TempDir())
	few := func(s *brig.Spec) { s.Limits.Processes = 32 }
	m := newMachine(t, p, images, "counted", few)
	refused := func(m *machine) brig.Refusals {
		t.Helper()
		r, err := m.Instance.(brig.Refuser).Refusals(t.Context())
		if err != nil || r == nil {
			t.Fatalf("%+v, %v", r, err)
		}
		return *r
	}
	const allowed = `python3 -c "
import socket, subprocess, threading
for _ in range(5): subprocess.run(['true'])
t = threading.Thread(target=print); t.start(); t.join()
l = socket.create_server(('127.0.0.1', 0)); socket.create_connection(l.getsockname()).close()
for family, kind, to in ((socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', 9)), (socket.AF_INET6, socket.SOCK_STREAM, ('::1', 9)), (socket.AF_UNIX, socket.SOCK_STREAM, '/nowhere')):
    assert socket.socket(family, kind).connect_ex(to) != 0
"`
	m.sh("user", allowed)
	if r := refused(m); r != (brig.Refusals{}) {
		t.Errorf("before anything was refused: %+v", r)
	}
	const n = 300
	m.sh("user", fmt.Sprintf(forks, n))
	if r := refused(m); r != (brig.Refusals{Processes: n}) {
		t.Errorf("after %d forks: %+v", n, r)
	}
	m.sh("user", fmt.Sprintf(connects, n))
	want := brig.Refusals{Processes: n, Connections: 3 * n}
	if r := refused(m); r != want {
		t.Errorf("after %d connections and %d packets: %+v", 2*n, n, r)
	}
	// A server may recover the instance after a restart.
	again, err := p.Recover(t.Context(), "counted", m.Handle())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := again.(brig.Refuser).Refusals(t.Context()); err != nil || r == nil || *r != want {
		t.Errorf("recovered: %+v, %v", r, err)
	}
	m.sh("user", fmt.Sprintf(forks, 1))
	want.Processes++
	if err := m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := refused(m); r != want {
		t.Errorf("after the end: %+v, want %+v", r, want)
	}

	t.Run("control", func(t *testing.T) {
		p, images := newProvider(t, t.TempDir(), "counters")
		m := newMachine(t, p, images, "uncounted", few)
		m.sh("user", fmt.Sprintf(forks, n))
		if r, err := m.Instance.(brig.Refuser).Refusals(t.Context()); r != nil || err != nil {
			t.Errorf("a machine without counters has %+v, %v", r, err)
		}
	})
}

// TestRefusalsAreAudited verifies that a fork bomb, forbidden connections and forbidden names
// each add one line to the audit log, even for a one-shot run. A program without refusals adds no
// line.
//
//suite:part hostile
func TestRefusalsAreAudited(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	limits := brig.DefaultLimitRange().Default
	limits.Processes = 32
	for name, code := range map[string]string{
		"quiet": "import subprocess\nprint(subprocess.run(['uname'], capture_output=True).stdout)",
		"bomb":  "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
		"dial":  "import socket\nfor _ in range(40): print(socket.socket().connect_ex(('203.0.113.5', 443)))",
		"name":  "import socket\ntry: socket.getaddrinfo('example.com', 443); raise SystemExit(1)\nexcept socket.gaierror: pass",
		"bind":  "import socket\ns = socket.create_server(('127.0.0.1', 0))\nsocket.create_connection(s.getsockname())",
	} {
		p := brig.Program{SandboxName: name, Language: brig.Python, Code: code, Limits: limits, Timeout: time.Minute}
		if name == "bomb" {
			p.Timeout = 2 * time.Second
		}
		o, err := e.Run(ctx, p, brig.IO{})
		if err != nil || name != "bomb" && o.ExitCode != 0 {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	records := map[string]int{}
	eventually(t, "lines about what was refused", func() bool {
		page, err := e.Audit(ctx, brig.AuditQuery{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		clear(records)
		for _, l := range page.Lines {
			if l.Op != brig.ForkOp && l.Op != brig.NoRouteOp {
				continue
			}
			key := l.Op + " " + l.Detail[brig.DetailName]
			if _, again := records[key]; again {
				t.Errorf("%s has another line: %+v", key, l.Detail)
			}
			if records[key], err = strconv.Atoi(l.Detail[brig.DetailCount]); err != nil || l.Detail[brig.DetailVerdict] != "denied" {
				t.Errorf("%+v", l)
			}
			if l.Op == brig.ForkOp && l.Detail[brig.DetailLimit] != "32" {
				t.Errorf("the limit: %+v", l.Detail)
			}
		}
		return len(records) >= 3
	})
	if len(records) != 3 || records["limit.processes bomb"] < 100 || records["egress.unreachable dial"] != 40 || records["egress.unreachable name"] < 1 {
		t.Errorf("%v", records)
	}
}
