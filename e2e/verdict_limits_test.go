package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// TestLimitErrorsAreSpecific verifies that a program that exceeds a limit receives the same error
// as on Linux, and is not killed.
//
//suite:part core
func TestLimitErrorsAreSpecific(t *testing.T) {
	e, ctx := newEngine(t)
	for what, c := range map[string]struct {
		limits brig.Limits
		code   string
		want   string
	}{
		"disk": {brig.Limits{Disk: 32 * brig.MiB},
			"n=0\nos.chdir(here)\nf=open('f','wb',buffering=0)\ntry:\n while True: n+=f.write(b'x'*65536)\nexcept OSError as x: print(x.errno==errno.ENOSPC, 31<<20 <= n <= 33<<20)\nf.close(); os.remove('f')\nprint(open('g','wb').write(b'x'*(1<<20))==1<<20)",
			"True True\nTrue\n"},
		"disk elsewhere": {brig.Limits{Disk: 16 * brig.MiB},
			"f=open(os.path.expanduser('~/f'),'wb',buffering=0)\ntry:\n while True: f.write(b'x'*65536)\nexcept OSError as x: print(x.errno==errno.ENOSPC)", "True\n"},
		"tmp": {brig.Limits{Disk: 16 * brig.MiB, Memory: 256 * brig.MiB},
			"n=0\nf=open('/tmp/f','wb',buffering=0)\ntry:\n while True: n+=f.write(b'x'*65536)\nexcept OSError as x: print(x.errno==errno.ENOSPC, n<=17<<20)", "True True\n"},
		"processes": {brig.Limits{Processes: 20},
			"n=0\ntry:\n while True:\n  if os.fork()==0: time.sleep(60); os._exit(0)\n  n+=1\nexcept OSError as x: print(x.errno==errno.EAGAIN, 17<=n<=20)", "True True\n"},
		"threads": {brig.Limits{Processes: 20},
			"import threading\nn=0\ntry:\n while True: threading.Thread(target=time.sleep,args=(60,),daemon=True).start(); n+=1\nexcept RuntimeError: print(17<=n<=20, flush=True)\nos._exit(0)", "True\n"},
		"open files": {brig.Limits{OpenFiles: 40},
			"a=[]\ntry:\n while True: a.append(os.open('/dev/null',0))\nexcept OSError as x: print(x.errno==errno.EMFILE, 35<=len(a)<=40)", "True True\n"},
		"raising them again": {brig.Limits{Processes: 20, OpenFiles: 40},
			"import resource as r\nfor l in r.RLIMIT_NPROC,r.RLIMIT_NOFILE:\n try: r.setrlimit(l,(1000,1000)); print('raised')\n except ValueError: print('no')", "no\nno\n"},
	} {
		// Root in a sandbox has no capabilities, so it cannot write to the
		// user's directories.
		for _, user := range []string{"user", "root"} {
			o, err := e.Run(ctx, brig.Program{User: user, Limits: c.limits, Command: []string{"python3", "-u", "-c", "import errno,os,time\nhere='/workspace' if os.getuid() else '/root'\n" + c.code}}, brig.IO{})
			if err != nil {
				t.Errorf("%s as %s: %v", what, user, err)
				continue
			}
			if string(o.Stdout.Head) != c.want || o.OOMKilled || o.TimedOut {
				t.Errorf("%s as %s: %q, want %q; %+v; %s", what, user, o.Stdout.Head, c.want, o.Result, o.Stderr.Head)
			}
		}
	}
	checkNoHostTraces(t, dataDirOf(t, e))
}

// cpuTime returns the CPU time that a sandbox has used, according to its
// cgroup.
func cpuTime(t *testing.T, dir string, id brig.ID) time.Duration {
	t.Helper()
	group := cgroupOf(t, dir, id)
	if b, err := os.ReadFile("/sys/fs/cgroup/cpuacct" + group + "/cpuacct.usage"); err == nil {
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			t.Error(err)
		}
		return time.Duration(n)
	}
	b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", group, "cpu.stat"))
	if err != nil {
		t.Error(err)
	}
	var n int64
	if _, err := fmt.Sscanf(string(b), "usage_usec %d", &n); err != nil {
		t.Error(err)
	}
	return time.Duration(n) * time.Microsecond
}

// TestProgramsShareCPULimit verifies, by the CPU time on the host, that four busy programs in a
// sandbox share its CPU limit.
//
//suite:part core alone
func TestProgramsShareCPULimit(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	for _, cpus := range []float64{1, 0.5} {
		s, err := e.Create(ctx, brig.Spec{Limits: brig.Limits{CPUs: cpus}, Command: &brig.Command{Shell: "for i in 1 2 3 4; do while :; do :; done & done; wait"}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond) // a new cgroup may use the quota of its first period immediately
		before, start := cpuTime(t, dataDirOf(t, e), s.ID), time.Now()
		time.Sleep(3 * time.Second)
		used := (cpuTime(t, dataDirOf(t, e), s.ID) - before).Seconds() / time.Since(start).Seconds()
		if used > 1.1*cpus {
			t.Errorf("a sandbox with %g processors used %.3f", cpus, used)
		}
		attack.RecordCase("RES-08", fmt.Sprintf("four programs that spin, with %g processors", cpus), used > 1.1*cpus)
		if used < 0.2*cpus {
			t.Errorf("a sandbox with %g processors used %.3f: did it spin at all?", cpus, used)
		}
		t.Logf("with %g processors it used %.3f", cpus, used)
		if err := e.Remove(ctx, s.Spec.Name); err != nil {
			t.Error(err)
		}
	}
	checkNoHostTraces(t, dataDirOf(t, e))
}
