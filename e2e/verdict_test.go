package e2e

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/internal/testenv"
)

// programsPerSort returns the number of programs of each sort that the tests
// run.
func programsPerSort() int { return testenv.Size(10, 100) }

// inParallel calls f with 0 to n-1 in atOnce goroutines. Callers choose atOnce such that two CPUs
// stay busy while other calls wait.
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

// verdictCounts counts correct and wrong verdicts by the sort of program.
type verdictCounts struct {
	mu        sync.Mutex // guards the fields below
	correct   map[string]int
	wrong     map[string]int
	durations []time.Duration
}

func newVerdictCounts() *verdictCounts {
	return &verdictCounts{correct: map[string]int{}, wrong: map[string]int{}}
}

func (c *verdictCounts) count(sort string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok {
		c.correct[sort]++
	} else {
		c.wrong[sort]++
	}
}

func (c *verdictCounts) measure(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.durations = append(c.durations, d)
}

// quantile returns the q-quantile of the measured durations.
func (c *verdictCounts) quantile(q float64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.durations) == 0 {
		return 0
	}
	slices.Sort(c.durations)
	return c.durations[min(int(q*float64(len(c.durations))), len(c.durations)-1)]
}

// sortedProgram is a program and its sort.
type sortedProgram struct {
	sort   string
	p      brig.Program
	stdout string // expected output of the program
}

// python returns a Python program with the given source.
func python(sort, code string) sortedProgram {
	return sortedProgram{sort: sort, p: brig.Program{Command: []string{"python3", "-u", "-c", code}}}
}

// memoryPrograms returns programs that exceed their memory limit.
func memoryPrograms() []sortedProgram {
	// After their output, the programs wait for the end of their input, because the kernel kills
	// them without warning.
	list := []sortedProgram{
		python("anonymous memory", "import sys\nprint('begun'); sys.stdin.read()\nx=[]\nwhile True: x.append(b'x'*(1<<20))"),
		python("a child's memory", "import os,sys,time\nprint('begun'); sys.stdin.read()\nif os.fork()==0:\n x=[]\n while True: x.append(b'x'*(1<<20))\nos.wait()\ntime.sleep(60)"),
		// /tmp and /dev/shm have their own limits, whose sum is the sandbox's
		// memory limit.
		python("files in memory", "import sys\nprint('begun'); sys.stdin.read()\nfor n in '/tmp/f','/dev/shm/f':\n try:\n  f=open(n,'wb',buffering=0)\n  while True: f.write(b'x'*(1<<20))\n except OSError as e: pass\nx=[]\nwhile True: x.append(b'x'*(1<<20))"),
		python("many processes", "import os,sys,time\nprint('begun'); sys.stdin.read()\nfor i in range(60):\n if os.fork()==0:\n  x=os.urandom(1<<20)*4\n  time.sleep(60)\ntime.sleep(60)"),
		python("shared memory", "import mmap,sys\nprint('begun'); sys.stdin.read()\nx=[]\nwhile True:\n m=mmap.mmap(-1,1<<22)\n for i in range(0,1<<22,4096): m[i]=1\n x.append(m)"),
	}
	for i := range list {
		list[i].p.Limits = brig.Limits{Memory: 96 * brig.MiB}
		list[i].stdout = "begun\n"
	}
	return list
}

// TestOutOfMemoryIsReported verifies that the result of a program that exceeds its memory limit,
// in any known way, is labeled as out of memory and contains the previous output.
//
//suite:part core
func TestOutOfMemoryIsReported(t *testing.T) {
	needRoot(t) // without a cgroup, a watchdog enforces the limit; see TestRootlessMemory
	e, ctx := newEngine(t)
	c := newVerdictCounts()
	list := memoryPrograms()
	inParallel(programsPerSort(), 4, func(i int) {
		g := list[i%len(list)]
		g.p.Timeout = 30 * time.Second
		// Close the program's input when the host has received the first output.
		input, end := io.Pipe()
		defer end.Close()
		o, err := e.Run(ctx, g.p, brig.IO{Stdin: input, Stdout: callbackWriter(func([]byte) { end.Close() })})
		if err != nil {
			t.Errorf("%s: %v", g.sort, err)
			return
		}
		ok := o.OOMKilled && !o.TimedOut && o.ExitCode == 137 && o.Error != nil && o.Error.Code == brig.OutOfMemory.Code()
		attack.RecordCase("RES-03", g.sort, !ok)
		attack.RecordMutant("GST-03", "one that did run out of memory: "+g.sort, "the lie", ok)
		if c.count(g.sort, ok); !ok {
			t.Errorf("%s: %+v, error %+v, stdout %q, stderr %q", g.sort, o.Result, o.Error, o.Stdout.Head, o.Stderr.Head)
		}
		if string(o.Stdout.Head) != g.stdout {
			t.Errorf("%s: its output %q is lost", g.sort, o.Stdout.Head)
		}
	})
	t.Logf("labelled oom_killed: %v; not labelled: %v", c.correct, c.wrong)
	checkNoHostTraces(t, dataDirOf(t, e))
}

// selfKillingPrograms returns programs that end as if they had been killed by
// the OOM killer.
func selfKillingPrograms() []sortedProgram {
	return []sortedProgram{
		python("itself", "import os\nprint('begun')\nos.kill(os.getpid(),9)"),
		python("its child", "import os,sys\nprint('begun')\np=os.fork()\nif p==0: os.kill(os.getpid(),9)\nsys.exit(128+(os.waitpid(p,0)[1]&127))"),
		python("its parent", "import os,time\nprint('begun')\np=os.getpid()\nif os.fork()==0: os.kill(p,9)\ntime.sleep(60)"),
		python("its group", "import os,time\nprint('begun')\nif os.fork()==0: time.sleep(60)\nos.killpg(0,9)"),
		python("exit 137", "print('begun')\nraise SystemExit(137)"),
		// Memory usage close to the limit, but within it.
		python("much memory, then itself", "import os\nprint('begun')\nx=b'x'*(40<<20)\nos.kill(os.getpid(),9)"),
		python("no memory given, then itself", "import os,resource\nprint('begun')\nresource.setrlimit(resource.RLIMIT_AS,(1<<28,1<<28))\ntry: x=bytearray(1<<30)\nexcept MemoryError: os.kill(os.getpid(),9)"),
		python("everything it may", "import os,time\nprint('begun')\nif os.fork()==0: os.kill(-1,9)\ntime.sleep(60)"),
	}
}

// TestKillIsNotOutOfMemory verifies that programs that end, or appear to end, by SIGKILL are not
// labeled as out of memory or as timed out.
//
//suite:part core
func TestKillIsNotOutOfMemory(t *testing.T) {
	e, ctx := newEngine(t)
	c := newVerdictCounts()
	list := selfKillingPrograms()
	inParallel(programsPerSort(), 4, func(i int) {
		s := list[i%len(list)]
		s.p.Limits = brig.Limits{Memory: 128 * brig.MiB}
		o, err := e.Run(ctx, s.p, brig.IO{})
		if err != nil {
			t.Errorf("%s: %v", s.sort, err)
			return
		}
		ok := !o.OOMKilled && !o.TimedOut && o.ExitCode == 137 && o.Error == nil
		attack.RecordCase("GST-03", "not out of memory: "+s.sort, !ok)
		if c.count(s.sort, ok); !ok || string(o.Stdout.Head) != "begun\n" {
			t.Errorf("%s: %+v, error %+v, stdout %q, stderr %q", s.sort, o.Result, o.Error, o.Stdout.Head, o.Stderr.Head)
		}
	})
	t.Logf("right: %v; wrong: %v", c.correct, c.wrong)
	checkNoHostTraces(t, dataDirOf(t, e))
}

// stubbornPrograms returns programs that print "begun" and then resist
// termination.
func stubbornPrograms() []sortedProgram {
	daemon := "import os,signal,sys,time\ndef daemon():\n if os.fork(): return\n os.setsid()\n if os.fork(): os._exit(0)\n [signal.signal(s,signal.SIG_IGN) for s in range(1,65) if s not in (9,19,32,33)]\n time.sleep(600); os._exit(0)\n"
	list := []sortedProgram{
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

// untilBegun runs a program with a timeout of one second, and doubles the timeout until the
// program prints output, because a program may not start within a second on a loaded host. It
// returns the last timeout.
func untilBegun(run func(timeout time.Duration) (printed bool, err error)) (time.Duration, error) {
	for timeout := time.Second; ; timeout *= 2 {
		printed, err := run(timeout)
		if printed || err != nil || timeout > promptTimeout {
			return timeout, err
		}
	}
}

// TestTimeoutEndsRuns runs hostile process trees with a timeout of one second. Each result must
// be labeled as timed out and contain the output, and no process may remain on the host after the
// response.
//
//suite:part core
func TestTimeoutEndsRuns(t *testing.T) {
	e, ctx := newEngine(t)
	dir := dataDirOf(t, e)
	attack.Case(t, "RES-10", "none of a one-shot's processes is left on the host")
	c := newVerdictCounts()
	list := stubbornPrograms()
	inParallel(programsPerSort()/2, 4, func(i int) {
		x := list[i%len(list)]
		var o *brig.Outcome
		var start time.Time
		timeout, err := untilBegun(func(timeout time.Duration) (printed bool, err error) {
			// The name distinguishes the sandbox's processes from those of
			// other sandboxes.
			x.p.SandboxName = fmt.Sprintf("tree-%d-%v", i, timeout)
			x.p.Timeout = timeout
			start = time.Now()
			o, err = e.Run(ctx, x.p, brig.IO{})
			return err == nil && o.Stdout.Total > 0, err
		})
		if err != nil {
			t.Errorf("%s: %v", x.sort, err)
			return
		}
		c.measure(o.Duration - timeout)
		ok := o.TimedOut && !o.OOMKilled && o.ExitCode == 124 && o.Error != nil && o.Error.Code == brig.Timeout.Code()
		attack.RecordCase("RES-10", x.sort, !ok)
		if c.count(x.sort, ok); !ok || !strings.HasPrefix(string(o.Stdout.Head), x.stdout) {
			t.Errorf("%s: %+v, error %+v, stdout %.20q, stderr %.400q", x.sort, o.Result, o.Error, o.Stdout.Head, o.Stderr.Head)
		}
		if took := time.Since(start); took > timeout+promptTimeout {
			t.Errorf("%s: with a timeout of %v it took %v, and the call %v", x.sort, timeout, o.Duration, took)
		}
	})
	checkNoHostTraces(t, dir)
	t.Logf("timed out: %v; not: %v; beyond the timeout: p50 %v, p99 %v", c.correct, c.wrong, c.quantile(0.5), c.quantile(0.99))
}

// TestTimeoutEndsExecs verifies that no process of the same programs remains in sandboxes that
// continue to run. A later command counts the processes inside the sandbox. Because the programs
// might deceive that command, the test also verifies on the host that the sandbox uses no CPU
// time at the end. It cannot count processes on the host, because gVisor reuses the host
// processes of ended processes.
//
//suite:part core
func TestTimeoutEndsExecs(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	c := newVerdictCounts()
	list := stubbornPrograms()
	const boxes = 4
	inParallel(boxes, boxes, func(k int) {
		s, err := e.Create(ctx, brig.Spec{Name: fmt.Sprintf("box-%d", k), Limits: list[0].p.Limits})
		if err != nil {
			t.Errorf("create: %v", err)
			return
		}
		// Warm up, because the first command permanently grows the sandbox.
		if _, err := e.Exec(ctx, s.Spec.Name, brig.Command{Shell: "sleep 0.1"}, brig.IO{}); err != nil {
			t.Errorf("exec: %v", err)
		}
		for i := k; i < programsPerSort()/2; i += boxes {
			x := list[(i/boxes+k)%len(list)]
			var res *brig.Result
			timeout, err := untilBegun(func(timeout time.Duration) (printed bool, err error) {
				res, err = e.Exec(ctx, s.Spec.Name, brig.Command{Argv: x.p.Command, Timeout: timeout}, brig.IO{})
				return err == nil && res.Stdout.Total > 0, err
			})
			ended := time.Now()
			if err != nil {
				t.Errorf("%s: %v", x.sort, err)
				return
			}
			c.measure(res.Duration - timeout)
			ok := res.TimedOut && !res.OOMKilled && res.ExitCode == 124
			if c.count(x.sort, ok); !ok || !strings.HasPrefix(string(res.Stdout.Head), x.stdout) {
				t.Errorf("%s: %+v, stdout %.20q, stderr %.400q", x.sort, *res, res.Stdout.Head, res.Stderr.Head)
			}
			checkNoProcessLeft(ctx, t, e, s, x.sort, ended)
		}
		// gVisor's cleanup uses the CPU briefly, possibly late on a loaded host. A remaining
		// process uses it continuously.
		for end := time.Now().Add(promptTimeout); ; {
			before := cpuTime(t, dataDirOf(t, e), s.ID)
			time.Sleep(500 * time.Millisecond)
			used := cpuTime(t, dataDirOf(t, e), s.ID) - before
			if used <= 150*time.Millisecond {
				break
			}
			if time.Now().After(end) {
				t.Errorf("in half a second without a program %s used %v of processor", s.Spec.Name, used)
				break
			}
		}
	})
	t.Logf("timed out: %v; not: %v; beyond the timeout: p50 %v, p99 %v", c.correct, c.wrong, c.quantile(0.5), c.quantile(0.99))
}

// checkNoProcessLeft verifies that no processes remain in a sandbox after a program's end, except
// the sandbox's init and the counting process.
func checkNoProcessLeft(ctx context.Context, t *testing.T, e brig.Service, s *brig.Sandbox, sort string, ended time.Time) {
	t.Helper()
	const count = `n=0; for f in /proc/[0-9]*/stat; do read -r pid comm state rest < $f || continue; case $state in Z|X) ;; *) [ $pid = 1 ] || [ $pid = $$ ] || { n=$((n+1)); echo "$pid $comm $state $rest" | cut -c1-60; } ;; esac; done 2>/dev/null; echo $n`
	for {
		late := time.Since(ended) > promptTimeout
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
