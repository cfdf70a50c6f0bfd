package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/internal/testenv"
)

// battery is how many programs of each sort are judged.
func battery() int { return testenv.Size(10, 100) }

// inParallel calls f with 0 to n-1, some at a time: as many as keep two
// processors busy while others wait.
func inParallel(n, atOnce int, f func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// tally counts verdicts by the sort of program.
type tally struct {
	mu     sync.Mutex // guards the fields below
	right  map[string]int
	wrong  map[string]int
	spread []time.Duration
}

func newTally() *tally { return &tally{right: map[string]int{}, wrong: map[string]int{}} }

func (c *tally) count(sort string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok {
		c.right[sort]++
	} else {
		c.wrong[sort]++
	}
}

func (c *tally) measure(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spread = append(c.spread, d)
}

// quantile returns a measured value so that q of them are not above it.
func (c *tally) quantile(q float64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spread) == 0 {
		return 0
	}
	slices.Sort(c.spread)
	return c.spread[min(int(q*float64(len(c.spread))), len(c.spread)-1)]
}

// sorted is a program and what it is an example of.
type sorted struct {
	sort   string
	p      brig.Program
	stdout string // what it must have been heard saying
}

// python makes a program of the given source.
func python(sort, code string) sorted {
	return sorted{sort: sort, p: brig.Program{Command: []string{"python3", "-u", "-c", code}}}
}

// gluttons are programs that use more memory than they may.
func gluttons() []sorted {
	// What they say has a moment to get out: the kernel gives no notice.
	list := []sorted{
		python("anonymous memory", "print('begun')\nimport time; time.sleep(0.3)\nx=[]\nwhile True: x.append(b'x'*(1<<20))"),
		python("a child's memory", "import os,time\nprint('begun'); time.sleep(0.3)\nif os.fork()==0:\n x=[]\n while True: x.append(b'x'*(1<<20))\nos.wait()\ntime.sleep(60)"),
		// /tmp and /dev/shm have bounds of their own, which together are as
		// large as the sandbox's memory.
		python("files in memory", "print('begun')\nimport time; time.sleep(0.3)\nfor n in '/tmp/f','/dev/shm/f':\n try:\n  f=open(n,'wb',buffering=0)\n  while True: f.write(b'x'*(1<<20))\n except OSError as e: pass\nx=[]\nwhile True: x.append(b'x'*(1<<20))"),
		python("many processes", "import os,time\nprint('begun'); time.sleep(0.3)\nfor i in range(60):\n if os.fork()==0:\n  x=os.urandom(1<<20)*4\n  time.sleep(60)\ntime.sleep(60)"),
		python("shared memory", "import mmap,time\nprint('begun'); time.sleep(0.3)\nx=[]\nwhile True:\n m=mmap.mmap(-1,1<<22)\n for i in range(0,1<<22,4096): m[i]=1\n x.append(m)"),
	}
	for i := range list {
		list[i].p.Limits = brig.Limits{Memory: 96 * brig.MiB}
		list[i].stdout = "begun\n"
	}
	return list
}

// TestOutOfMemoryIsSaid runs programs that use too much memory in all the ways
// there are. Every one is labelled so, and what it had said before is kept.
//
//suite:part core
func TestOutOfMemoryIsSaid(t *testing.T) {
	needRoot(t) // without a cgroup it is a watchdog's: see TestRootlessMemory
	e, ctx := newEngine(t)
	c := newTally()
	list := gluttons()
	inParallel(battery(), 4, func(i int) {
		g := list[i%len(list)]
		g.p.Timeout = 30 * time.Second
		o, err := e.Run(ctx, g.p, brig.IO{})
		if err != nil {
			t.Errorf("%s: %v", g.sort, err)
			return
		}
		ok := o.OOMKilled && !o.TimedOut && o.ExitCode == 137 && o.Error != nil && o.Error.Code == brig.OutOfMemory.Code()
		attack.Tried("RES-03", g.sort, !ok)
		attack.Seen("GST-03", "one that did run out of memory: "+g.sort, "the lie", ok)
		if c.count(g.sort, ok); !ok {
			t.Errorf("%s: %+v, error %+v, stdout %q, stderr %q", g.sort, o.Result, o.Error, o.Stdout.Head, o.Stderr.Head)
		}
		if string(o.Stdout.Head) != g.stdout {
			t.Errorf("%s: its output %q is lost", g.sort, o.Stdout.Head)
		}
	})
	t.Logf("labelled oom_killed: %v; not labelled: %v", c.right, c.wrong)
	wantNoTraces(t, dataDirOf(t, e))
}

// suicides are programs that end as one does that was killed for its memory.
func suicides() []sorted {
	return []sorted{
		python("itself", "import os\nprint('begun')\nos.kill(os.getpid(),9)"),
		python("its child", "import os,sys\nprint('begun')\np=os.fork()\nif p==0: os.kill(os.getpid(),9)\nsys.exit(128+(os.waitpid(p,0)[1]&127))"),
		python("its parent", "import os,time\nprint('begun')\np=os.getpid()\nif os.fork()==0: os.kill(p,9)\ntime.sleep(60)"),
		python("its group", "import os,time\nprint('begun')\nif os.fork()==0: time.sleep(60)\nos.killpg(0,9)"),
		python("exit 137", "print('begun')\nraise SystemExit(137)"),
		// Close to the limit, but within it.
		python("much memory, then itself", "import os\nprint('begun')\nx=b'x'*(40<<20)\nos.kill(os.getpid(),9)"),
		python("no memory given, then itself", "import os,resource\nprint('begun')\nresource.setrlimit(resource.RLIMIT_AS,(1<<28,1<<28))\ntry: x=bytearray(1<<30)\nexcept MemoryError: os.kill(os.getpid(),9)"),
		python("everything it may", "import os,time\nprint('begun')\nif os.fork()==0: os.kill(-1,9)\ntime.sleep(60)"),
	}
}

// TestKillIsNotOutOfMemory runs programs that end by SIGKILL, or as if. None
// is labelled as out of memory, and none as timed out.
//
//suite:part core
func TestKillIsNotOutOfMemory(t *testing.T) {
	e, ctx := newEngine(t)
	c := newTally()
	list := suicides()
	inParallel(battery(), 4, func(i int) {
		s := list[i%len(list)]
		s.p.Limits = brig.Limits{Memory: 128 * brig.MiB}
		o, err := e.Run(ctx, s.p, brig.IO{})
		if err != nil {
			t.Errorf("%s: %v", s.sort, err)
			return
		}
		ok := !o.OOMKilled && !o.TimedOut && o.ExitCode == 137 && o.Error == nil
		attack.Tried("GST-03", "not out of memory: "+s.sort, !ok)
		if c.count(s.sort, ok); !ok || string(o.Stdout.Head) != "begun\n" {
			t.Errorf("%s: %+v, error %+v, stdout %q, stderr %q", s.sort, o.Result, o.Error, o.Stdout.Head, o.Stderr.Head)
		}
	})
	t.Logf("right: %v; wrong: %v", c.right, c.wrong)
	wantNoTraces(t, dataDirOf(t, e))
}

// trees are programs that do not want to end, and say "begun" before.
func trees() []sorted {
	daemon := "import os,signal,sys,time\ndef daemon():\n if os.fork(): return\n os.setsid()\n if os.fork(): os._exit(0)\n [signal.signal(s,signal.SIG_IGN) for s in range(1,65) if s not in (9,19,32,33)]\n time.sleep(600); os._exit(0)\n"
	list := []sorted{
		python("double fork", daemon+"daemon()\nprint('begun')\ntime.sleep(600)"),
		python("every signal ignored", "import signal,time\nfor s in range(1,65):\n if s not in (9,19,32,33): signal.signal(s,signal.SIG_IGN)\nprint('begun')\nwhile True: time.sleep(600)"),
		python("a stopped child", "import os,signal,time\np=os.fork()\nif p==0: time.sleep(600)\nos.kill(p,signal.SIGSTOP)\nprint('begun')\ntime.sleep(600)"),
		python("stops itself", "import os,signal,time\nif os.fork()==0: time.sleep(600)\nprint('begun')\nos.kill(os.getpid(),signal.SIGSTOP)"),
		python("many sessions", daemon+"print('begun')\nfor i in range(12): daemon()\ntime.sleep(600)"),
		python("children that fork for ever", "import os,time\nprint('begun')\nfor i in range(2):\n if os.fork()==0:\n  while True:\n   try:\n    if os.fork(): os._exit(0)\n   except OSError: time.sleep(0.01)\ntime.sleep(600)"),
		python("a small fork bomb", "import os,time\nprint('begun')\nwhile True:\n try: os.fork()\n except OSError: time.sleep(0.05)"),
		{sort: "a shell's background", p: brig.Program{Command: []string{"/bin/sh", "-c", `trap '' TERM INT HUP; echo begun; for i in 1 2 3 4; do (trap '' TERM HUP; setsid sleep 600 &) & done; while :; do sleep 600; done`}}},
		python("busy, and with a pipe to itself", "import os\nr,w=os.pipe()\nprint('begun')\nif os.fork()==0:\n os.setsid()\n while True: pass\nos.read(r,1)"),
		python("its first thread gone", "import ctypes,os,threading,time\nprint('begun')\nthreading.Thread(target=time.sleep,args=(600,)).start()\nctypes.CDLL(None).syscall(60,0)"),
		python("floods", "import os,time\nprint('begun')\nos.fork()\nwhile True: os.write(1,b'x'*65536)"),
	}
	for i := range list {
		list[i].p.Limits = brig.Limits{Processes: 40, Memory: 256 * brig.MiB, Output: 64 * brig.KiB}
		list[i].stdout = "begun\n"
	}
	return list
}

// TestTimeoutEndsOneShots gives hostile process trees a second. Each is
// labelled, what it said is there, and no process of it is left on the host
// when the answer is.
//
//suite:part core
func TestTimeoutEndsOneShots(t *testing.T) {
	e, ctx := newEngine(t)
	dir := dataDirOf(t, e)
	attack.Case(t, "RES-10", "none of a one-shot's processes is left on the host")
	c := newTally()
	list := trees()
	inParallel(battery()/2, 4, func(i int) {
		x := list[i%len(list)]
		// The label finds the sandbox's processes among its neighbours'.
		x.p.Name = fmt.Sprintf("tree-%d", i)
		x.p.Timeout = time.Second
		start := time.Now()
		o, err := e.Run(ctx, x.p, brig.IO{})
		if err != nil {
			t.Errorf("%s: %v", x.sort, err)
			return
		}
		c.measure(o.Duration - time.Second)
		ok := o.TimedOut && !o.OOMKilled && o.ExitCode == 124 && o.Error != nil && o.Error.Code == brig.Timeout.Code()
		attack.Tried("RES-10", x.sort, !ok)
		if c.count(x.sort, ok); !ok || !strings.HasPrefix(string(o.Stdout.Head), x.stdout) {
			t.Errorf("%s: %+v, error %+v, stdout %.20q, stderr %.400q", x.sort, o.Result, o.Error, o.Stdout.Head, o.Stderr.Head)
		}
		if took := time.Since(start); took > patience {
			t.Errorf("%s: with a timeout of 1s it took %v, and the call %v", x.sort, o.Duration, took)
		}
	})
	wantNoTraces(t, dir)
	t.Logf("timed out: %v; not: %v; beyond the second: p50 %v, p99 %v", c.right, c.wrong, c.quantile(0.5), c.quantile(0.99))
}

// TestTimeoutEndsExecs does the same in sandboxes that go on living. What is
// left inside is counted by a later command. In case that is fooled, too, the
// host measures that nothing is busy in the end; it cannot count, since gVisor
// keeps the host's processes of those that ended for those that come.
//
//suite:part core
func TestTimeoutEndsExecs(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	c := newTally()
	list := trees()
	const boxes = 4
	inParallel(boxes, boxes, func(k int) {
		s, err := e.Create(ctx, brig.Spec{Name: fmt.Sprintf("box-%d", k), Limits: list[0].p.Limits})
		if err != nil {
			t.Errorf("create: %v", err)
			return
		}
		// A first command makes the sandbox as large as an idle one is.
		if _, err := e.Exec(ctx, s.Spec.Name, brig.Command{Shell: "sleep 0.1"}, brig.IO{}); err != nil {
			t.Errorf("exec: %v", err)
		}
		for i := k; i < battery()/2; i += boxes {
			x := list[(i/boxes+k)%len(list)]
			res, err := e.Exec(ctx, s.Spec.Name, brig.Command{Argv: x.p.Command, Timeout: time.Second}, brig.IO{})
			ended := time.Now()
			if err != nil {
				t.Errorf("%s: %v", x.sort, err)
				return
			}
			c.measure(res.Duration - time.Second)
			ok := res.TimedOut && !res.OOMKilled && res.ExitCode == 124
			if c.count(x.sort, ok); !ok || !strings.HasPrefix(string(res.Stdout.Head), x.stdout) {
				t.Errorf("%s: %+v, stdout %.20q, stderr %.400q", x.sort, *res, res.Stdout.Head, res.Stderr.Head)
			}
			countLeft(ctx, t, e, s, x.sort, ended)
		}
		before := cpuTime(t, dataDirOf(t, e), s.ID)
		time.Sleep(500 * time.Millisecond)
		if used := cpuTime(t, dataDirOf(t, e), s.ID) - before; used > 150*time.Millisecond {
			t.Errorf("in half a second without a program %s used %v of processor", s.Spec.Name, used)
		}
	})
	t.Logf("timed out: %v; not: %v; beyond the second: p50 %v, p99 %v", c.right, c.wrong, c.quantile(0.5), c.quantile(0.99))
}

// countLeft counts what lives in a sandbox beside its init and the one that
// counts, after a program's end.
func countLeft(ctx context.Context, t *testing.T, e brig.Service, s *brig.Sandbox, sort string, ended time.Time) {
	t.Helper()
	const count = `n=0; for f in /proc/[0-9]*/stat; do read -r pid comm state rest < $f || continue; case $state in Z|X) ;; *) [ $pid = 1 ] || [ $pid = $$ ] || { n=$((n+1)); echo "$pid $comm $state $rest" | cut -c1-60; } ;; esac; done 2>/dev/null; echo $n`
	for {
		late := time.Since(ended) > patience
		res, err := e.Exec(ctx, s.Spec.Name, brig.Command{Argv: []string{"/bin/sh", "-c", count}, User: "root"}, brig.IO{})
		if err != nil {
			t.Errorf("%s: count: %v", sort, err)
			return
		}
		if string(res.Stdout.Head) == "0\n" {
			return
		}
		if late {
			t.Errorf("%s: these are left: %s", sort, res.Stdout.Head)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
