package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// cellsOf runs a cell concurrently in a context of each sandbox, and returns the output of each.
func cellsOf(t *testing.T, ctx context.Context, svc brig.Service, boxes []*brig.Sandbox, contextID, source string) []string {
	t.Helper()
	out := make([]string, len(boxes))
	var work sync.WaitGroup
	for i, box := range boxes {
		work.Go(func() {
			r, err := svc.RunCode(ctx, box.Spec.Name, brig.Code{Context: contextID, Source: source}, nil)
			if err != nil || r.Error != nil {
				t.Errorf("cell in %s: %+v, %v", box.Spec.Name, r, err)
				if err == nil {
					t.Errorf("%s: %s", r.Error.Name, r.Error.Value)
				}
				return
			}
			out[i] = strings.TrimSpace(string(r.Stdout.Head))
		})
	}
	work.Wait()
	return out
}

// awaitPort returns a shell command that waits until a program listens on a port of the sandbox.
func awaitPort(port int) string {
	return fmt.Sprintf("until (exec 3<>/dev/tcp/127.0.0.1/%d) 2>/dev/null; do sleep .05; done", port)
}

// TestFork verifies that copies of a sandbox have its variables, files, open files, threads and
// processes, but their own ID and host name. Changes in one sandbox are not visible in the
// others, and no traces remain after the end of the sandboxes.
//
//suite:part core
func TestFork(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	dir := dataDirOf(t, e)
	origin, err := e.Create(ctx, brig.Spec{Name: "one", Pausable: true, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	cx, err := e.CreateContext(ctx, "one", brig.ContextSpec{})
	if err != nil {
		t.Fatal(err)
	}
	runCell(t, ctx, e, "one", cx.ID, "import socket, threading, time, urllib.request\nx = 41\nf = open('/tmp/open', 'w+')\nticks = []\ndef beat():\n    while True:\n        time.sleep(.05); ticks.append(1)\nthreading.Thread(target=beat, daemon=True).start()")
	shellOut(t, ctx, e, "one", "echo one > /workspace/a; echo two > /tmp/b; echo three > /dev/shm/c")
	server, err := e.Processes("one").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"}}})
	if err != nil {
		t.Fatal(err)
	}
	shellOut(t, ctx, e, "one", awaitPort(8000))
	copies, err := e.Fork(ctx, "one", brig.ForkSpec{Count: testenv.Size(4, 8)})
	if err != nil {
		t.Fatal(err)
	}
	boxes := append(copies, origin)
	if remaining, _ := filepath.Glob(filepath.Join(dir, "saves", "*")); len(remaining) > 0 {
		t.Errorf("saves are left: %v", remaining)
	}
	const look = "x += 1\nn = len(ticks)\nwhile len(ticks) == n: time.sleep(.02)\nf.write('.')\nprint(x, socket.gethostname(), ' '.join(open(p).read().strip() for p in ('/workspace/a', '/tmp/b', '/dev/shm/c')), urllib.request.urlopen('http://127.0.0.1:8000/').status)"
	for i, got := range cellsOf(t, ctx, e, boxes, cx.ID, look) {
		if want := "42 " + boxes[i].Spec.Name + " one two three 200"; got != want {
			t.Errorf("%s printed %q, want %q", boxes[i].Spec.Name, got, want)
		}
	}
	for i, box := range boxes {
		if box.Origin == "" != (box.ID == origin.ID) {
			t.Errorf("%s is a copy of %q", box.Spec.Name, box.Origin)
		}
		shellOut(t, ctx, e, box.Spec.Name, fmt.Sprintf("echo %d > /workspace/a", i))
		list, err := e.Processes(box.Spec.Name).List(ctx)
		if err != nil || len(list) != 1 || list[0].PID != server.PID {
			t.Errorf("%s has the processes %+v, %v", box.Spec.Name, list, err)
		}
		list2, err := e.Contexts(ctx, box.Spec.Name)
		if err != nil || len(list2) != 1 || list2[0].Sandbox != box.ID {
			t.Errorf("%s has the contexts %+v, %v", box.Spec.Name, list2, err)
		}
	}
	for i, box := range boxes {
		if got := shellOut(t, ctx, e, box.Spec.Name, "cat /workspace/a"); got != fmt.Sprint(i) {
			t.Errorf("the file of %s contains %q, want %d", box.Spec.Name, got, i)
		}
	}
	secondCopies, err := e.Fork(ctx, copies[0].Spec.Name, brig.ForkSpec{TTL: time.Minute, Labels: map[string]string{"try": "b"}})
	if err != nil {
		t.Fatalf("the copy of a copy: %v", err)
	}
	if got := runCell(t, ctx, e, secondCopies[0].Spec.Name, cx.ID, "print(x)"); got != "42" || secondCopies[0].Spec.Labels["try"] != "b" || time.Until(secondCopies[0].Expires) > time.Minute {
		t.Errorf("the copy of a copy printed %q: %+v", got, secondCopies[0])
	}
	if _, err := e.Pause(ctx, copies[1].Spec.Name, brig.PauseOptions{}); err != nil {
		t.Errorf("pause of a copy: %v", err)
	}
	if got := runCell(t, ctx, e, copies[1].Spec.Name, cx.ID, "print(x)"); got != "42" {
		t.Errorf("a resumed copy printed %q", got)
	}
	for _, box := range append(boxes, secondCopies...) {
		if err := e.Remove(ctx, box.Spec.Name); err != nil {
			t.Error(err)
		}
	}
	checkNoHostTraces(t, dir)
}

// entropy is a server in a sandbox with its own random generators. For a request to /watching, it
// reseeds them if the generation has changed. For other requests, it never reseeds them.
const entropy = `import http.server, os, random, ssl
ssl.RAND_bytes(1)
seen = None
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global seen
        if self.path == '/watching':
            try:
                now = open('/run/brig/generation').read()
            except FileNotFoundError:
                now = None
            if now != seen:
                seen = now
                ssl.RAND_add(os.urandom(48), 48.0)
                random.seed()
        self.send_response(200)
        self.end_headers()
        self.wfile.write((ssl.RAND_bytes(8).hex() + ' ' + str(random.random())).encode())
    def log_message(self, *args):
        pass
http.server.HTTPServer(('127.0.0.1', 9000), Handler).serve_forever()
`

// TestForkRandomNumbers verifies that the interpreters of copies return different random numbers,
// and so does a program that watches the generation file. The control is the same program without
// the watch, whose copies return the same numbers.
//
//suite:part hostile
func TestForkRandomNumbers(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	origin, err := e.Create(ctx, brig.Spec{Name: "one", Pausable: true, Env: map[string]string{"BRIG_RESTORED": "hostname > /workspace/restored; cat /run/brig/generation >> /workspace/restored"}})
	if err != nil {
		t.Fatal(err)
	}
	contexts := map[brig.Language]string{}
	for language, source := range map[brig.Language]string{
		brig.Python:     "import random, secrets, ssl, uuid\nssl.RAND_bytes(1), random.random()\ntry:\n    import numpy; numpy.random.random()\nexcept ImportError:\n    numpy = None",
		brig.JavaScript: "var nc = require('crypto'); void [nc.randomBytes(1), nc.randomUUID(), nc.randomInt(9), Math.random()]",
		brig.Bash:       ": $RANDOM",
	} {
		cx, err := e.CreateContext(ctx, "one", brig.ContextSpec{Language: language})
		if err != nil {
			t.Fatal(err)
		}
		contexts[language] = cx.ID
		runCell(t, ctx, e, "one", cx.ID, source)
	}
	if _, err := e.Files("one").Write(ctx, brig.Path{Name: "/workspace/entropy.py"}, brig.FileWrite{}, strings.NewReader(entropy)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Processes("one").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"python3", "/workspace/entropy.py"}}}); err != nil {
		t.Fatal(err)
	}
	fetch := func(box *brig.Sandbox, path string) string {
		return shellOut(t, ctx, e, box.Spec.Name, `python3 -c "
import time, urllib.request
for i in range(600):
    try:
        print(urllib.request.urlopen('http://127.0.0.1:9000`+path+`').read().decode()); break
    except OSError:
        time.sleep(.1)"`)
	}
	fetch(origin, "/watching")
	copies, err := e.Fork(ctx, "one", brig.ForkSpec{Count: testenv.Size(4, 16)})
	if err != nil {
		t.Fatal(err)
	}
	boxes := append(copies, origin)
	for language, source := range map[brig.Language]string{
		brig.Python:     "print(ssl.RAND_bytes(8).hex(), random.random(), random.getrandbits(64), uuid.uuid4(), secrets.token_hex(8), numpy.random.random() if numpy else secrets.token_hex(8))",
		brig.JavaScript: "console.log(nc.randomBytes(8).toString('hex'), nc.randomUUID(), nc.randomInt(2 ** 47), Math.random(), globalThis.crypto.randomUUID(), globalThis.crypto.getRandomValues(new Uint32Array(2)).join('-'))",
		brig.Bash:       "echo $RANDOM-$RANDOM-$RANDOM-$RANDOM",
	} {
		wantDistinct(t, string(language), cellsOf(t, ctx, e, boxes, contexts[language], source))
	}
	var same, watching, restored []string
	for _, box := range copies {
		same = append(same, fetch(box, "/"))
	}
	for _, box := range copies {
		watching = append(watching, fetch(box, "/watching"))
		b := shellOut(t, ctx, e, box.Spec.Name, "cat /workspace/restored /run/brig/generation; ! echo x 2>/dev/null >> /run/brig/generation; ! rm -f /run/brig/generation 2>/dev/null")
		lines := strings.Split(b, "\n")
		if len(lines) != 3 || lines[0] != box.Spec.Name || lines[1] != lines[2] {
			t.Errorf("in %s the script for copies wrote %q", box.Spec.Name, b)
		}
		restored = append(restored, lines[len(lines)-1])
	}
	for _, s := range same {
		if s != same[0] || s == "" {
			t.Errorf("control: copies of a program that does not reseed printed %q and %q", same[0], s)
		}
	}
	wantDistinct(t, "a program that watches the generation", watching)
	wantDistinct(t, "generations", restored)
	if out := shellOut(t, ctx, e, "one", "ls /workspace/restored /run/brig/generation 2>/dev/null || true"); out != "" {
		t.Errorf("the original has %q", out)
	}
}

// wantDistinct fails the test if two values are equal. Each text contains values that are
// separated by spaces.
func wantDistinct(t *testing.T, what string, texts []string) {
	t.Helper()
	seen := map[string]int{}
	for i, text := range texts {
		if text == "" {
			t.Errorf("%s: copy %d printed nothing", what, i)
		}
		for column, value := range strings.Fields(text) {
			value = fmt.Sprint(column, ":", value)
			if before, twice := seen[value]; twice {
				t.Errorf("%s: copies %d and %d both have %s", what, before, i, value)
			}
			seen[value] = i
		}
	}
}

// TestUnsavableSandboxIsNotForked verifies that a sandbox with a program that cannot be saved, or
// whose script for copies fails, is not forked and continues to run. Another tenant can access
// neither the original nor a copy.
//
//suite:part hostile
func TestUnsavableSandboxIsNotForked(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	dir := dataDirOf(t, e)
	rival := brig.WithActor(t.Context(), brig.Actor{Name: "eve", Tenant: "rival", Role: brig.Operator})
	if _, err := e.Create(ctx, brig.Spec{Name: "one", Pausable: true, Env: map[string]string{"BRIG_RESTORED": "echo not today >&2; test -e /workspace/fine"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Fork(ctx, "one", brig.ForkSpec{Count: 2}); brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "not today") {
		t.Errorf("with a script that fails: %v", err)
	}
	page, err := e.List(ctx, brig.ListOptions{})
	if err != nil || len(page.Sandboxes) != 1 {
		t.Errorf("after that there are %+v, %v", page, err)
	}
	shellOut(t, ctx, e, "one", "touch /workspace/fine")
	copies, err := e.Fork(ctx, "one", brig.ForkSpec{})
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	for _, name := range []string{"one", copies[0].Spec.Name, string(copies[0].ID)} {
		_, getErr := e.Get(rival, name)
		_, forkErr := e.Fork(rival, name, brig.ForkSpec{})
		if brig.KindOf(getErr) != brig.NotFound || brig.KindOf(forkErr) != brig.NotFound {
			t.Errorf("another tenant's get and fork of %s: %v, %v", name, getErr, forkErr)
		}
	}
	if _, err := e.Create(ctx, brig.Spec{Name: "two"}); err != nil {
		t.Fatal(err)
	}
	sleep, err := e.Processes("two").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "1000"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Fork(ctx, "two", brig.ForkSpec{}); brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "sleep") {
		t.Errorf("with a process whose streams belong to the host: %v", err)
	}
	if list, err := e.Processes("two").List(ctx); err != nil || len(list) != 1 || list[0].PID != sleep.PID {
		t.Errorf("after the refusal the processes are %+v, %v", list, err)
	}
	for _, name := range []string{"one", "two", copies[0].Spec.Name} {
		if err := e.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}
	checkNoHostTraces(t, dir)
}

// TestForkWithOtherLimits verifies that copies of a sandbox that is paused without its memory boot
// with the limits, the user and the directory of their request.
//
//suite:part core
func TestForkWithOtherLimits(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	if _, err := e.Create(ctx, brig.Spec{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	shellOut(t, ctx, e, "one", "echo kept > /workspace/file")
	if _, err := e.Pause(ctx, "one", brig.PauseOptions{FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	limits := brig.Limits{Memory: 256 * brig.MiB}
	if _, err := e.Fork(ctx, "one", brig.ForkSpec{Name: "two", Limits: limits, User: "root", Dir: "/etc"}); err != nil {
		t.Fatal(err)
	}
	const look = "cat /workspace/file; id -u; pwd; awk '/MemTotal/ {print ($2 <= 262144)}' /proc/meminfo"
	if got := strings.Fields(shellOut(t, ctx, e, "two", look)); !slices.Equal(got, []string{"kept", "0", "/etc", "1"}) {
		t.Errorf("the copy has %q", got)
	}
	if got := strings.Fields(shellOut(t, ctx, e, "one", look)); !slices.Equal(got, []string{"kept", "1000", "/workspace", "0"}) {
		t.Errorf("control: the original has %q", got)
	}
	for _, name := range []string{"one", "two"} {
		if err := e.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}
}

// TestForkPausedCopy verifies that a paused copy keeps the state of the original at the time of
// the fork, has no process on the host, and can be forked while it is paused. Its copies and,
// once resumed, the copy itself return different random numbers.
//
//suite:part core
func TestForkPausedCopy(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	dir := dataDirOf(t, e)
	if _, err := e.Create(ctx, brig.Spec{Name: "one", Pausable: true, Env: map[string]string{"BRIG_RESTORED": "cat /run/brig/generation > /workspace/restored"}}); err != nil {
		t.Fatal(err)
	}
	cx, err := e.CreateContext(ctx, "one", brig.ContextSpec{})
	if err != nil {
		t.Fatal(err)
	}
	runCell(t, ctx, e, "one", cx.ID, "import random, ssl\nssl.RAND_bytes(1), random.random()\nx = 41")
	kept, err := e.Fork(ctx, "one", brig.ForkSpec{Name: "base", Paused: true})
	if err != nil {
		t.Fatal(err)
	}
	wantPausedOnHost(t, dir, kept[0].ID)
	runCell(t, ctx, e, "one", cx.ID, "x = 0")
	boxes, err := e.Fork(ctx, "base", brig.ForkSpec{Count: 2, Env: map[string]string{"ADDED": "yes"}})
	if err != nil {
		t.Fatal(err)
	}
	wantPausedOnHost(t, dir, kept[0].ID)
	if got := shellOut(t, ctx, e, boxes[0].Spec.Name, "echo $ADDED"); got != "yes\n" && got != "yes" {
		t.Errorf("the added variable is %q", got)
	}
	const look = "print(x + 1, file=open('/workspace/x', 'w'))\nprint(ssl.RAND_bytes(8).hex(), random.random())"
	boxes = append(boxes, kept[0])
	wantDistinct(t, "python", append(cellsOf(t, ctx, e, boxes, cx.ID, look), runCell(t, ctx, e, "one", cx.ID, look)))
	var generations []string
	for _, box := range boxes {
		if got := shellOut(t, ctx, e, box.Spec.Name, "cat /workspace/x; hostname"); got != "42\n"+box.Spec.Name {
			t.Errorf("%s has %q", box.Spec.Name, got)
		}
		generations = append(generations, shellOut(t, ctx, e, box.Spec.Name, "cat /workspace/restored"))
	}
	wantDistinct(t, "generations", generations)
	if _, err := os.Stat(filepath.Join(dir, "saves", string(kept[0].ID))); err == nil {
		t.Error("the save of a resumed copy is still there")
	}
	for _, name := range []string{"one", "base", boxes[0].Spec.Name, boxes[1].Spec.Name} {
		if err := e.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}
	checkNoHostTraces(t, dir)
}
