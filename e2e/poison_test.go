package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// interpreterChanges are changes that a program may make to its interpreter and its sandbox, each
// with the mark that lookProgram prints if it detects the change.
var interpreterChanges = []struct{ name, mark, code string }{
	{"variable", "variable", "SECRET = 'a'"},
	{"builtin", "builtin", "import builtins\nbuiltins.hex = lambda x: 42"},
	{"module", "module", "import json\njson.loads = lambda s: 'poison'"},
	{"import hook", "hook", "import sys\nclass Ghost:\n    def find_spec(self, *a): return None\nsys.meta_path.insert(0, Ghost())"},
	{"environment", "environment", "import os\nos.environ['SECRET'] = 'a'"},
	{"working directory", "cwd", "import os\nos.chdir('/')"},
	{"signal handler", "signal", "import signal\nsignal.signal(signal.SIGTERM, lambda *a: None)"},
	{"limit", "limit", "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))"},
	{"umask", "umask", "import os\nos.umask(0o777)"},
	{"thread", "thread", "import threading, time\nthreading.Thread(target=lambda: [time.sleep(.01) for _ in iter(int, 1)], daemon=True).start()"},
	{"child", "child", "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)"},
	{"file", "file", "open('/workspace/secret', 'w').write('a')"},
	{"hidden file", "file", "open('/tmp/secret', 'w').write('a')"},
	{"exit hook", "file", "import atexit\natexit.register(lambda: open('/tmp/secret', 'w').write('a'))"},
	{"closed descriptors", "silence", "import os\nos.closerange(1, 3)"},
}

// lookProgram prints the marks of the changes that it detects, and prints nothing in an
// unmodified interpreter.
const lookProgram = `
def look():
    import json, os, resource, signal, sys, threading
    found = set()
    if "SECRET" in sys.modules["__main__"].__dict__: found.add("variable")
    if hex(1) != "0x1": found.add("builtin")
    if json.loads("1") != 1: found.add("module")
    if any(type(f).__name__ == "Ghost" for f in sys.meta_path): found.add("hook")
    if "SECRET" in os.environ: found.add("environment")
    if os.getcwd() != "/workspace": found.add("cwd")
    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL: found.add("signal")
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 100: found.add("limit")
    mask = os.umask(0); os.umask(mask)
    if mask == 0o777: found.add("umask")
    if threading.active_count() > 1: found.add("thread")
    for pid in os.listdir("/proc"):
        try:
            if b"1000" in open("/proc/%s/cmdline" % pid, "rb").read().split(b"\0"): found.add("child")
        except OSError: pass
    if os.path.exists("/workspace/secret") or os.path.exists("/tmp/secret"): found.add("file")
    print("found:", *sorted(found), flush=True)
look()
`

const clean = "found:\n"

// TestSandboxChangesAreDiscarded verifies that no caller sees changes that another caller's
// program made to its interpreter and its sandbox. The control is the modified interpreter
// itself, in which the probe detects the changes.
//
//suite:part hostile
func TestSandboxChangesAreDiscarded(t *testing.T) {
	needRoot(t)
	e, ctx := pooledEngine(t, 3)
	stranger := brig.WithActor(t.Context(), brig.Actor{Name: "bob", Tenant: "other", Role: brig.Member})
	for _, p := range interpreterChanges {
		t.Run(p.name, func(t *testing.T) {
			if _, err := e.Run(ctx, brig.Program{Language: brig.Python, Code: p.code}, brig.IO{}); err != nil {
				t.Fatal(err)
			}
			for _, who := range []context.Context{ctx, stranger} {
				awaitReady(t, e, ctx, 1)
				o, err := e.Run(who, brig.Program{Language: brig.Python, Code: lookProgram}, brig.IO{})
				if err != nil || o.Pool != brig.PoolHit || string(o.Stdout.Head) != clean {
					t.Errorf("after %s the next run has %q, %q (%s, %v)", p.name, o.Stdout.Head, o.Stderr.Head, o.Pool, err)
				}
			}
			// The control uses the same interpreter twice.
			box, err := e.Create(ctx, brig.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Remove(ctx, box.Spec.Name)
			if got := runPoisonAndProbe(t, e, ctx, box.Spec.Name, p.code); got == clean || !strings.Contains(got, p.mark) && p.mark != "silence" {
				t.Errorf("the probe does not see %s: %q", p.name, got)
			}
		})
	}
}

// runPoisonAndProbe runs the code of a change and then the probe in one
// context, and returns the probe's findings.
func runPoisonAndProbe(t *testing.T, e *engine.Engine, ctx context.Context, sandbox, code string) string {
	t.Helper()
	if strings.Contains(code, "atexit") {
		code += "\natexit._run_exitfuncs()"
	}
	// Disable IPython, which fails after its own exit hooks have run.
	c, err := e.CreateContext(ctx, sandbox, brig.ContextSpec{Env: map[string]string{"BRIG_NO_IPYTHON": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.RunCode(ctx, sandbox, brig.Code{Context: c.ID, Source: code}, nil); err != nil {
		t.Fatal(err)
	}
	r, err := e.RunCode(ctx, sandbox, brig.Code{Context: c.ID, Source: lookProgram}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Error != nil {
		return "error: " + r.Error.Name + " " + r.Error.Traceback
	}
	return string(r.Stdout.Head)
}

// TestPooledSandboxesAreNotShared verifies that concurrent programs of many tenants, with and
// without pooled sandboxes, never get a used sandbox, and that each tenant receives its own
// results.
//
//suite:part hostile
func TestPooledSandboxesAreNotShared(t *testing.T) {
	needRoot(t)
	e, ctx := pooledEngine(t, 8)
	awaitReady(t, e, ctx, 8)
	var mu sync.Mutex
	used, hits := map[string]bool{}, 0
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			who := brig.WithActor(t.Context(), brig.Actor{Name: "x", Tenant: fmt.Sprintf("tenant-%d", i%5), Role: brig.Member})
			ownSecret := fmt.Sprintf("secret-%d", i)
			o, err := e.Run(who, brig.Program{Language: brig.Python, Timeout: time.Minute, Env: map[string]string{"MINE": ownSecret},
				Code: "import os, socket\nprint(os.environ['MINE'], os.path.exists('/tmp/x'), socket.gethostname())\nopen('/tmp/x', 'w').write('x')"}, brig.IO{})
			if err != nil {
				t.Error(err)
				return
			}
			want := fmt.Sprintf("%s False %s\n", ownSecret, o.Sandbox)
			if string(o.Stdout.Head) != want {
				t.Errorf("run %d has %q, %q, want %q", i, o.Stdout.Head, o.Stderr.Head, want)
			}
			mu.Lock()
			defer mu.Unlock()
			if used[o.Sandbox] {
				t.Errorf("%s was used twice", o.Sandbox)
			}
			used[o.Sandbox] = true
			if o.Pool == brig.PoolHit {
				hits++
			}
		})
	}
	wg.Wait()
	if hits < 8 {
		t.Errorf("of 40 runs %d were hits, with 8 waiting", hits)
	}
}

// pooledEngine returns an engine on real gVisor whose pool keeps n Python
// sandboxes ready.
func pooledEngine(t testing.TB, n int) (*engine.Engine, context.Context) {
	t.Helper()
	e, ctx := engineWith(t, engine.Options{
		Pool: engine.PoolOptions{Memory: 2 * brig.GiB, Warm: []engine.WarmClass{{Image: brig.HostImage, Language: brig.Python, Count: n}}},
	})
	if err := e.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e, ctx
}

// awaitReady waits until n Python sandboxes are ready in the pool.
func awaitReady(t testing.TB, e *engine.Engine, ctx context.Context, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		shelves, err := e.Pool(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range shelves {
			if s.Language == brig.Python && s.Ready >= n {
				return
			}
		}
	}
	t.Fatal("the pool does not fill")
}
