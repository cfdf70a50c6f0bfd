package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
	"github.com/brig-run/brig/store/sqlite"
)

// verdict is a row of the table in the door's COMPAT.md.
type verdict struct{ when, status, exit, said string }

// ownExit stands in the table for an exit code that is the program's own.
const ownExit = "its own"

// verdicts reads the table.
func verdicts(t *testing.T) map[string]verdict {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "api", "execman", "COMPAT.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "\n| When | status | exit_code | type or detail |\n|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]verdict{}
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 4 {
			t.Fatalf("%q is no row of the table", line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		v := verdict{cells[0], strings.Trim(cells[1], "`"), cells[2], strings.Trim(cells[3], "`")}
		if _, ok := rows[v.when]; ok || v.when == "" {
			t.Fatalf("two rows are for %q", v.when)
		}
		rows[v.when] = v
	}
	return rows
}

// leads is a program that leads to a row of the table.
type leads struct {
	name           string
	to             string // the row
	language, code string
	exit           int    // its own, where the row says so
	stdout, stderr string // stderr contains
	// narrow says that the server has room for one at once, and much time, and
	// screens.
	narrow bool
	before func(*execmanDoor, *testing.T)
}

const (
	returned   = "`main` has returned"
	unsafe     = "screening finds something in the code, and says where in lines `Line N: …`"
	noRoom     = "nobody has room for it within 10 s"
	tooMany    = "there were too many"
	lateHears  = "its time is over, and it ends when it is sent SIGTERM"
	lateDeaf   = "its time is over, and 5 s after SIGTERM it is still there"
	noMemory   = "its memory is used up"
	denied     = "`Permission denied` in stderr"
	forbidden  = "`Operation not permitted` in stderr"
	hasNoSpace = "`MemoryError` in stderr"
	otherExit  = "any other exit code but 0"
	unforeseen = "whatever else keeps it from running"
)

var leading = []leads{
	{name: "a value", to: returned, language: "python", code: "def main(name):\n    print('hi', name)\n    return {'n': 1}\n", stdout: "hi Ann\n"},
	{name: "a value of nodejs", to: returned, language: "nodejs", code: "async function main({name}) { console.log(name); return [name]; }", stdout: "Ann\n"},

	{name: "eval", to: unsafe, language: "python", code: "def main(name):\n    return eval('1')\n", stderr: "Line 2: ", narrow: true},

	{name: "one too many", to: noRoom, language: "python", code: "def main(name):\n    return 1\n", stderr: "Container pool is busy", narrow: true, before: (*execmanDoor).fill},
	{name: "too soon", to: tooMany, language: "python", code: "def main(name):\n    return 1\n", stderr: "Too many requests", narrow: true, before: (*execmanDoor).spend},

	{name: "sleeps", to: lateHears, language: "python", code: "import time\ndef main(name):\n    time.sleep(60)\n", stderr: "Execution timeout"},
	{name: "is busy", to: lateHears, language: "python", code: "def main(name):\n    while True: pass\n", stderr: "Execution timeout"},
	{name: "ends well when it is asked to", to: lateHears, language: "python", code: "import signal, sys, time\ndef main(name):\n    signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))\n    time.sleep(60)\n", stderr: "Execution timeout"},
	{name: "is busy in nodejs", to: lateHears, language: "nodejs", code: "function main() { for (;;); }", stderr: "Execution timeout"},

	{name: "ignores it", to: lateDeaf, language: "python", code: "import signal, time\ndef main(name):\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    while True: time.sleep(1)\n", stderr: "Command timed out"},
	{name: "ignores it in nodejs", to: lateDeaf, language: "nodejs", code: "function main() { process.on('SIGTERM', () => {}); return new Promise(() => setInterval(() => {}, 1000)); }", stderr: "Command timed out"},

	{name: "takes all", to: noMemory, language: "python", code: "def main(name):\n    x = []\n    while True:\n        x.append(bytearray(b'x') * (1 << 20))\n", stderr: "Memory limit exceeded"},

	{name: "a file", to: denied, language: "python", code: "def main(name):\n    open('/etc/hosts', 'w')\n", exit: 1, stderr: "Permission denied"},
	{name: "a system call", to: forbidden, language: "python", code: "import os\ndef main(name):\n    os.setuid(0)\n", exit: 1, stderr: "Operation not permitted"},
	{name: "asks for more than there is", to: hasNoSpace, language: "python", code: "def main(name):\n    return bytearray(1 << 62)\n", exit: 1, stderr: "MemoryError"},

	{name: "no main", to: otherExit, language: "python", code: "print('x')\n", exit: 1, stderr: "main"},
	{name: "no main in nodejs", to: otherExit, language: "nodejs", code: "console.log('x')", exit: 1, stderr: "main"},
	{name: "nothing returned", to: otherExit, language: "nodejs", code: "function main() {}", exit: 1, stderr: "null"},
	{name: "an exception", to: otherExit, language: "python", code: "def main(name):\n    print('lost')\n    raise ValueError('no good')\n", exit: 1, stderr: "ValueError: no good"},
	{name: "an exit code", to: otherExit, language: "python", code: "import sys\ndef main(name):\n    sys.exit(42)\n", exit: 42},
	{name: "an exit code that looks like late", to: otherExit, language: "python", code: "import sys\ndef main(name):\n    sys.exit(124)\n", exit: 124},
	{name: "a signal of its own", to: otherExit, language: "python", code: "import os, signal\ndef main(name):\n    os.kill(os.getpid(), signal.SIGKILL)\n", exit: 137},

	{name: "too long", to: unforeseen, language: "python", code: "def main(name):\n    return 1\n" + strings.Repeat("#", 16<<20), stderr: "too long"},
}

// Each row of the executor manager's table, by programs that lead to it, on
// servers with the door at an address of its own. A row without a program, and
// a program that leads nowhere, fail.
//
//suite:part clients full
func TestExecmanVerdicts(t *testing.T) {
	rows := verdicts(t)
	led := map[string]bool{}
	for _, c := range leading {
		if led[c.to] = true; rows[c.to].when == "" {
			t.Errorf("%s leads to %q, of which the table knows nothing", c.name, c.to)
		}
	}
	for when := range rows {
		if !led[when] {
			t.Errorf("no program leads to %q", when)
		}
	}
	wide := execmanServer(t, "timeout: 3s\n  memory: 96MiB\n  pool: 2")
	narrow := execmanServer(t, "pool: 1\n  timeout: 60s\nscreening:\n  mode: deny\n  python: {calls: [eval]}\n  others: false")
	for _, c := range leading {
		t.Run(c.to+"/"+c.name, func(t *testing.T) {
			d, row := wide, rows[c.to]
			if c.narrow {
				d = narrow
			}
			if c.before != nil {
				c.before(d, t)
			}
			r := d.run(t, c.language, c.code, `{"name":"Ann"}`)
			said := r.Detail
			for _, s := range []*string{r.Resource, r.Unauthorized, r.Runtime} {
				if s != nil {
					said += *s
				}
			}
			exit := fmt.Sprint(r.ExitCode)
			if row.exit == ownExit && r.ExitCode == c.exit {
				exit = ownExit
			}
			if got := (verdict{row.when, r.Status, exit, said}); got != row {
				t.Errorf("it is %+v, want %+v: %+v", got, row, r)
			}
			if r.Stdout != c.stdout || !strings.Contains(r.Stderr, c.stderr) {
				t.Errorf("it wrote %q and %q", r.Stdout, r.Stderr)
			}
			if (r.Status == wire.ExecmanSuccess) != r.Result.Present {
				t.Errorf("its result is %+v", r.Result)
			}
		})
	}
}

// What a program leaves: artifacts for its caller, and nothing for the next.
//
//suite:part clients
func TestExecmanLeaves(t *testing.T) {
	d := execmanServer(t, "pool: 1")
	r := d.run(t, "python", "def main():\n    open('artifacts/a.csv', 'w').write('a,b')\n    open('artifacts/a.exe', 'w').write('x')\n", `{}`)
	if len(r.Artifacts) != 1 || r.Artifacts[0].Name != "a.csv" || r.Artifacts[0].MIMEType != "text/csv" || string(r.Artifacts[0].Content) != "a,b" {
		t.Errorf("the artifacts are %+v", r.Artifacts)
	}
	const there = "import os\ndef main():\n    %sreturn [os.path.exists('/tmp/left'), os.path.exists('left')]\n"
	first := fmt.Sprintf(there, "open('/tmp/left', 'w').write('x')\n    open('left', 'w').write('x')\n    ")
	if r := d.run(t, "python", first, `{}`); string(r.Result.Value) != "[true,true]" {
		t.Errorf("a program does not find what it left itself: %+v", r)
	}
	if r := d.run(t, "python", fmt.Sprintf(there, ""), `{}`); string(r.Result.Value) != "[false,false]" {
		t.Errorf("the next one finds what was left: %+v", r)
	}
}

// execmanDoor is a server's door, and the server.
type execmanDoor struct {
	at string
	*server
}

// fill has a program use the only room there is until the test is over.
func (d *execmanDoor) fill(t *testing.T) {
	done := make(chan *wire.ExecmanResult, 1)
	go func() {
		done <- d.run(t, "python", "import time\ndef main():\n    time.sleep(14)\n    return 1\n", `{}`)
	}()
	t.Cleanup(func() {
		if r := <-done; r == nil || r.Status != wire.ExecmanSuccess {
			t.Errorf("what had the room: %+v", r)
		}
	})
	key, err := d.client().CreateKey(t.Context(), brig.KeySpec{Name: "looker", Tenant: execmanTenant, Role: brig.Member})
	if err != nil {
		t.Fatal(err)
	}
	looker := *d.server
	looker.key = key.Secret
	for range 200 {
		if page, err := looker.client().List(t.Context(), brig.ListOptions{}); err != nil {
			t.Fatal(err)
		} else if len(page.Sandboxes) > 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("no program runs")
}

// spend uses up what the door's tenant may ask for, until the test is over.
func (d *execmanDoor) spend(t *testing.T) {
	allow := func(rate float64) {
		t.Helper()
		if _, err := d.client().UpdateTenant(context.WithoutCancel(t.Context()), brig.Tenant{Name: execmanTenant, Quota: brig.Quota{Rate: rate}}); err != nil {
			t.Error(err)
		}
	}
	allow(0.001)
	t.Cleanup(func() { allow(0) })
	if r := d.run(t, "python", "def main():\n    return 1\n", `{}`); r.Status != wire.ExecmanSuccess {
		t.Errorf("the first one: %+v", r)
	}
}

// execmanTenant is for whom the door runs programs.
const execmanTenant = "ragflow"

// execmanServer starts a server with an executor manager's door.
func execmanServer(t *testing.T, more string) *execmanDoor {
	t.Helper()
	dir := dataDir(t)
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "brig.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.PutTenant(t.Context(), &brig.Tenant{Name: execmanTenant}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	file := filepath.Join(t.TempDir(), "brig.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("execman:\n  listen: %s\n  tenant: %s\n  %s\n", at, execmanTenant, more)), 0o600); err != nil {
		t.Fatal(err)
	}
	return &execmanDoor{at, endGently(t, startServer(t, dir, "--config", file))}
}

// endGently has a server end its pool before its folder is removed.
func endGently(t *testing.T, s *server) *server {
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("the server ends with %v: %s", err, s.errs)
		}
	})
	return s
}

// run asks for a program, nil if there was no answer.
func (d *execmanDoor) run(t *testing.T, language, code, arguments string) *wire.ExecmanResult {
	t.Helper()
	body := fmt.Sprintf(`{"code_b64":%q,"language":%q,"arguments":%s}`, base64.StdEncoding.EncodeToString([]byte(code)), language, arguments)
	client := http.Client{Timeout: time.Minute}
	resp, err := client.Post("http://"+d.at+"/run", "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return nil
	}
	defer resp.Body.Close()
	var r wire.ExecmanResult
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil || resp.StatusCode != 200 {
		t.Errorf("HTTP %d: %v", resp.StatusCode, err)
	}
	return &r
}
