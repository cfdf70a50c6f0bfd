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
	"github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/store/sqlite"
)

// verdict is a row of the verdict table in COMPAT.md of the executor manager API.
type verdict struct{ when, status, exit, printed string }

// ownExit represents the program's own exit code in the table.
const ownExit = "its own"

// verdicts returns the key of the rows of the table in COMPAT.md, keyed by the first column.
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

// verdictCase is a program that produces a row of the table.
type verdictCase struct {
	name           string
	to             string // the row
	language, code string
	exit           int    // the program's exit code, if the row contains it
	stdout, stderr string // stdout is exact; stderr is a substring
	// narrow selects the server that runs one program at a time, has a long timeout, and screens
	// code.
	narrow bool
	before func(*execmanServerAPI, *testing.T)
}

const (
	returned   = "`main` returned"
	unsafe     = "screening rejects the code; stderr has lines `Line N: …`"
	noRoom     = "no sandbox is free within 10 s"
	tooMany    = "the tenant's rate or quota is used up"
	lateHears  = "the program times out, and ends after SIGTERM"
	lateDeaf   = "the program times out, and does not end within 5 s after SIGTERM"
	noMemory   = "the program runs out of memory"
	denied     = "`Permission denied` in stderr"
	forbidden  = "`Operation not permitted` in stderr"
	hasNoSpace = "`MemoryError` in stderr"
	otherExit  = "any other exit code except 0"
	unforeseen = "any other reason for which the program cannot run"
)

var verdictCases = []verdictCase{
	{name: "a value", to: returned, language: "python", code: "def main(name):\n    print('hi', name)\n    return {'n': 1}\n", stdout: "hi Ann\n"},
	{name: "a value of nodejs", to: returned, language: "nodejs", code: "async function main({name}) { console.log(name); return [name]; }", stdout: "Ann\n"},

	{name: "a relative path", to: returned, language: "python", code: "import subprocess\ndef main(name):\n    open('rel', 'w').write(name)\n    print(subprocess.check_output('cat rel; echo -n \" back\" > out', shell=True).decode() + open('out').read())\n    return 1\n", stdout: "Ann back\n"},

	{name: "eval", to: unsafe, language: "python", code: "def main(name):\n    return eval('1')\n", stderr: "Line 2: ", narrow: true},

	{name: "one too many", to: noRoom, language: "python", code: "def main(name):\n    return 1\n", stderr: "Container pool is busy", narrow: true, before: (*execmanServerAPI).fill},
	{name: "too soon", to: tooMany, language: "python", code: "def main(name):\n    return 1\n", stderr: "Too many requests", narrow: true, before: (*execmanServerAPI).exhaustRateLimit},

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
	{name: "undefined", to: returned, language: "nodejs", code: "function main() {}"},
	{name: "an exception", to: otherExit, language: "python", code: "def main(name):\n    print('lost')\n    raise ValueError('no good')\n", exit: 1, stderr: "ValueError: no good"},
	{name: "an exit code", to: otherExit, language: "python", code: "import sys\ndef main(name):\n    sys.exit(42)\n", exit: 42},
	{name: "an exit code that looks like late", to: otherExit, language: "python", code: "import sys\ndef main(name):\n    sys.exit(124)\n", exit: 124},
	{name: "a signal of its own", to: otherExit, language: "python", code: "import os, signal\ndef main(name):\n    os.kill(os.getpid(), signal.SIGKILL)\n", exit: 137},

	{name: "too long", to: unforeseen, language: "python", code: "def main(name):\n    return 1\n" + strings.Repeat("#", 16<<20), stderr: "too long"},
}

// TestExecmanVerdicts verifies each row of the executor manager's table with programs that
// produce it, on servers that serve this API at a separate address. It fails if a row has no
// program, or if the result of a program matches no row.
//
//suite:part clients full
func TestExecmanVerdicts(t *testing.T) {
	rows := verdicts(t)
	led := map[string]bool{}
	for _, c := range verdictCases {
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
	for _, c := range verdictCases {
		t.Run(c.to+"/"+c.name, func(t *testing.T) {
			d, row := wide, rows[c.to]
			if c.narrow {
				d = narrow
			}
			if c.before != nil {
				c.before(d, t)
			}
			r := d.run(t, c.language, c.code, `{"name":"Ann"}`)
			printed := r.Detail
			for _, s := range []*string{r.Resource, r.Unauthorized, r.Runtime} {
				if s != nil {
					printed += *s
				}
			}
			exit := fmt.Sprint(r.ExitCode)
			if row.exit == ownExit && r.ExitCode == c.exit {
				exit = ownExit
			}
			if got := (verdict{row.when, r.Status, exit, printed}); got != row {
				t.Errorf("it is %+v, want %+v: %+v", got, row, r)
			}
			if r.Stdout != c.stdout || !strings.Contains(r.Stderr, c.stderr) {
				t.Errorf("it wrote %q and %q", r.Stdout, r.Stderr)
			}
			if (r.Status == v1.ExecmanSuccess) != r.Result.Present {
				t.Errorf("its result is %+v", r.Result)
			}
		})
	}
}

// TestExecmanArtifacts verifies that a program's artifacts are returned to its caller, and that
// no state remains for the next program.
//
//suite:part clients
func TestExecmanArtifacts(t *testing.T) {
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

// execmanServerAPI is a server and the address of its executor manager API.
type execmanServerAPI struct {
	at string
	*server
}

// fill occupies the server's only slot with a program until the test ends.
func (d *execmanServerAPI) fill(t *testing.T) {
	done := make(chan *v1.ExecmanResult, 1)
	go func() {
		done <- d.run(t, "python", "import time\ndef main():\n    time.sleep(14)\n    return 1\n", `{}`)
	}()
	t.Cleanup(func() {
		if r := <-done; r == nil || r.Status != v1.ExecmanSuccess {
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

// exhaustRateLimit exhausts the request rate of the API's tenant until the test ends.
func (d *execmanServerAPI) exhaustRateLimit(t *testing.T) {
	allow := func(rate float64) {
		t.Helper()
		if _, err := d.client().UpdateTenant(context.WithoutCancel(t.Context()), brig.Tenant{Name: execmanTenant, Quota: brig.Quota{Rate: rate}}); err != nil {
			t.Error(err)
		}
	}
	allow(0.001)
	t.Cleanup(func() { allow(0) })
	if r := d.run(t, "python", "def main():\n    return 1\n", `{}`); r.Status != v1.ExecmanSuccess {
		t.Errorf("the first one: %+v", r)
	}
}

// execmanTenant is the tenant for which the API runs programs.
const execmanTenant = "ragflow"

// execmanServer starts a server with the executor manager API.
func execmanServer(t *testing.T, more string) *execmanServerAPI {
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
	at := fmt.Sprintf("127.0.0.1:%d", testenv.Port(t))
	file := filepath.Join(t.TempDir(), "brig.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("execman:\n  listen: %s\n  tenant: %s\n  %s\n", at, execmanTenant, more)), 0o600); err != nil {
		t.Fatal(err)
	}
	return &execmanServerAPI{at, stopServer(t, startServer(t, dir, "--config", file))}
}

// stopServer stops the server and its pool at the end of the test, before the server's data
// folder is removed.
func stopServer(t *testing.T, s *server) *server {
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("the server ends with %v: %s", err, s.errs)
		}
	})
	return s
}

// run runs a program and returns its result, or nil if no response arrived.
func (d *execmanServerAPI) run(t *testing.T, language, code, arguments string) *v1.ExecmanResult {
	t.Helper()
	body := fmt.Sprintf(`{"code_b64":%q,"language":%q,"arguments":%s}`, base64.StdEncoding.EncodeToString([]byte(code)), language, arguments)
	client := http.Client{Timeout: time.Minute}
	resp, err := client.Post("http://"+d.at+"/run", "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return nil
	}
	defer resp.Body.Close()
	var r v1.ExecmanResult
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil || resp.StatusCode != 200 {
		t.Errorf("HTTP %d: %v", resp.StatusCode, err)
	}
	return &r
}
