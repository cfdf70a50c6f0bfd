package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig/door/wire"
)

// Each row of the executor manager's table, by a program that leads to it, on
// a server with the door at an address of its own.
func TestExecmanDoor(t *testing.T) {
	dir := t.TempDir()
	url := "http://" + execmanServer(t, dir, "timeout: 3s\n  memory: 96MiB\n  pool: 2")
	for _, c := range []struct {
		name, language, code string
		status               string
		exit                 int
		detail               string // of the type, or of the detail
		stdout, stderr       string // stderr contains
	}{
		{"success", "python", "def main(name):\n    print('hi', name)\n    return {'n': 1}\n", wire.ExecmanSuccess, 0, "", "hi Ann\n", ""},
		{"nodejs", "nodejs", "async function main({name}) { console.log(name); return [name]; }", wire.ExecmanSuccess, 0, "", "Ann\n", ""},
		{"no main", "python", "print('x')\n", wire.ExecmanProgramError, 1, wire.ExecmanNonzero, "", "main"},
		{"no main of nodejs", "nodejs", "console.log('x')", wire.ExecmanProgramError, 1, wire.ExecmanNonzero, "", "main"},
		{"nothing returned", "nodejs", "function main() {}", wire.ExecmanProgramError, 1, wire.ExecmanNonzero, "", "null"},
		{"an exception", "python", "def main(name):\n    print('lost')\n    raise ValueError('no good')\n", wire.ExecmanProgramError, 1, wire.ExecmanNonzero, "", "ValueError: no good"},
		{"an exit code", "python", "import sys\ndef main(name):\n    sys.exit(42)\n", wire.ExecmanProgramError, 42, wire.ExecmanNonzero, "", ""},
		{"out of time", "python", "import time\ndef main(name):\n    time.sleep(60)\n", wire.ExecmanResource, -124, wire.ExecmanTime, "", "Execution timeout"},
		{"out of memory", "python", "def main(name):\n    x = []\n    while True:\n        x.append(bytearray(b'x') * (1 << 20))\n", wire.ExecmanResource, -137, wire.ExecmanMemory, "", "Memory limit exceeded"},
		{"a memory error", "python", "def main(name):\n    return bytearray(1 << 62)\n", wire.ExecmanResource, 1, wire.ExecmanMemory, "", "MemoryError"},
		{"a file", "python", "def main(name):\n    open('/etc/hosts', 'w')\n", wire.ExecmanUnauthorized, 1, wire.ExecmanFile, "", "ermission"},
		{"a system call", "python", "import os\ndef main(name):\n    os.setuid(0)\n", wire.ExecmanUnauthorized, 1, wire.ExecmanSyscall, "", "not permitted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := execmanRun(t, url, c.language, c.code, `{"name":"Ann"}`)
			said := r.Detail
			for _, s := range []*string{r.Resource, r.Unauthorized, r.Runtime} {
				if s != nil {
					said = *s
				}
			}
			if r.Status != c.status || r.ExitCode != c.exit || said != c.detail || r.Stdout != c.stdout || !strings.Contains(r.Stderr, c.stderr) {
				t.Errorf("it is %+v (%s)", r, said)
			}
			if (r.Status == wire.ExecmanSuccess) != r.Result.Present {
				t.Errorf("its result is %+v", r.Result)
			}
		})
	}
	r := execmanRun(t, url, "python", "import os\ndef main():\n    os.makedirs('artifacts')\n    open('artifacts/a.csv', 'w').write('a,b')\n    open('artifacts/a.exe', 'w').write('x')\n", `{}`)
	if len(r.Artifacts) != 1 || r.Artifacts[0].Name != "a.csv" || r.Artifacts[0].MIMEType != "text/csv" || string(r.Artifacts[0].Content) != "a,b" {
		t.Errorf("the artifacts are %+v", r.Artifacts)
	}
	// A sandbox is used once: what one leaves no other finds.
	execmanRun(t, url, "python", "def main():\n    open('/tmp/left', 'w').write('x')\n    open('left', 'w').write('x')\n", `{}`)
	if r := execmanRun(t, url, "python", "import os\ndef main():\n    return [os.path.exists('/tmp/left'), os.path.exists('left')]\n", `{}`); string(r.Result.Value) != "[false,false]" {
		t.Errorf("the next sandbox finds what was left: %+v", r)
	}
}

// The rows of the table in which no program runs: it is refused for what is in
// it, nobody has room for it, or there have been too many.
func TestExecmanRefusals(t *testing.T) {
	dir := t.TempDir()
	url := "http://" + execmanServer(t, dir, "pool: 1\n  timeout: 60s\nscreening:\n  mode: deny\n  python: {calls: [eval]}\n  others: false")
	want := func(what string, r *wire.ExecmanResult, code int, detail, stderr string) {
		t.Helper()
		if r.Status != wire.ExecmanRunner || r.ExitCode != code || r.Detail != detail || !strings.Contains(r.Stderr, stderr) || r.Result.Present {
			t.Errorf("%s: %+v", what, r)
		}
	}
	want("unsafe", execmanRun(t, url, "python", "def main():\n    return eval('1')\n", `{}`), -999, wire.ExecmanUnsafe, "Line 2: ")
	long := make(chan *wire.ExecmanResult, 1)
	go func() {
		long <- execmanRun(t, url, "python", "import time\ndef main():\n    time.sleep(13)\n    return 1\n", `{}`)
	}()
	time.Sleep(time.Second)
	want("no room", execmanRun(t, url, "python", "def main():\n    return 1\n", `{}`), -10, wire.ExecmanNoneFree, "Container pool is busy")
	if r := <-long; r.Status != wire.ExecmanSuccess {
		t.Errorf("what had the room: %+v", r)
	}
}

// execmanServer starts a server with an executor manager's door and returns
// its address.
func execmanServer(t *testing.T, dir, more string) string {
	t.Helper()
	at := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	file := filepath.Join(t.TempDir(), "brig.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("execman:\n  listen: %s\n  %s\n", at, more)), 0o600); err != nil {
		t.Fatal(err)
	}
	endGently(t, startServer(t, dir, "--config", file))
	return at
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

func execmanRun(t *testing.T, url, language, code, arguments string) *wire.ExecmanResult {
	t.Helper()
	body := fmt.Sprintf(`{"code_b64":%q,"language":%q,"arguments":%s}`, base64.StdEncoding.EncodeToString([]byte(code)), language, arguments)
	client := http.Client{Timeout: time.Minute}
	resp, err := client.Post(url+"/run", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var r wire.ExecmanResult
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil || resp.StatusCode != 200 {
		t.Fatalf("HTTP %d: %v", resp.StatusCode, err)
	}
	return &r
}
