package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// TestAttackExhaustExceedsHigherLimits is the control for the limits: with a higher limit, the
// same program exceeds the value at which the other tests stop it, so the limit is the cause.
//
//suite:part hostile
func TestAttackExhaustExceedsHigherLimits(t *testing.T) {
	needRoot(t)
	p, images := newProvider(t, t.TempDir())
	m := newMachine(t, p, images, "generous", func(s *brig.Spec) {
		s.Limits.Processes, s.Limits.OpenFiles, s.Limits.Disk, s.Limits.Memory = 400, 4000, 160*brig.MiB, 2*brig.GiB
	})
	number := func(script string) (n int) {
		t.Helper()
		out := m.sh("user", script)
		if _, err := fmt.Sscan(out, &n); err != nil {
			t.Errorf("%s: %q", script, out)
		}
		return n
	}
	for _, c := range []struct {
		id, what, script string
		beyond           int // the limit in the other tests, which must be exceeded here
	}{
		{"RES-01", "children", "python3 -c \"\nimport os,time\nn=0\nwhile n<150:\n  try:\n    if os.fork()==0: time.sleep(5); os._exit(0)\n  except OSError: break\n  n+=1\nprint(n)\"", 64},
		{"RES-02", "threads", "python3 -c \"\nimport threading,time\nn=0\ntry:\n  while n<150: threading.Thread(target=time.sleep,args=(1,),daemon=True).start(); n+=1\nexcept RuntimeError: pass\nprint(n,flush=True)\"", 64},
		{"RES-04", "the disk", probe + " fill /home/user/fill", 96 * brig.MiB},
		{"RES-06", "open files", probe + " files", 100},
	} {
		n := number(c.script)
		if n <= c.beyond {
			t.Errorf("%s: %d, with a limit far beyond %d", c.what, n, c.beyond)
		}
		attack.RecordMutant(c.id, c.what, "the limit", n > c.beyond)
	}
	// The control of inodes: the count includes files on the host's disk.
	before, dir := inodes(t, m), filepath.Join(p.DataDir, "control")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 4_000 {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	used := inodes(t, m) - before
	if used < 3_000 {
		t.Errorf("4,000 files of the host take %d inodes", used)
	}
	attack.RecordMutant("RES-05", "files of the host's disk", "the sandbox", used >= 3_000)
}

// TestAttackExceedsSharesWithoutLimits is the control for the limits of memory, CPUs and output.
//
//suite:part hostile
func TestAttackExceedsSharesWithoutLimits(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	const much = "x=bytearray(200<<20)\nfor i in range(0,len(x),4096): x[i]=1\nprint('had it')"
	for memory, want := range map[int64]bool{96 * brig.MiB: false, 512 * brig.MiB: true} {
		o, err := e.Run(ctx, brig.Program{Command: []string{"python3", "-c", much}, Limits: brig.Limits{Memory: memory}, Timeout: time.Minute}, brig.IO{})
		if err != nil {
			t.Fatal(err)
		}
		had := string(o.Stdout.Head) == "had it\n"
		if had != want || o.OOMKilled == want {
			t.Errorf("with %d: %+v", memory, o.Result)
		}
		if want {
			attack.RecordMutant("RES-03", "200 MiB", "the limit", had)
		} else {
			attack.RecordCase("RES-03", "200 MiB", had)
		}
	}
	o, err := e.Run(ctx, brig.Program{Command: []string{"head", "-c", "14000000", "/dev/zero"}, Limits: brig.Limits{Output: 16 * brig.MiB}, Timeout: time.Minute}, brig.IO{})
	if err != nil {
		t.Fatal(err)
	}
	if kept := len(o.Stdout.Head) + len(o.Stdout.Tail); kept <= 8<<20 {
		t.Errorf("with room for 16 MiB %d are kept", kept)
	} else {
		attack.RecordMutant("RES-07", "14 MB of output", "the limit", true)
	}
	// Regardless of other load on the host, four busy programs with a higher limit eventually use
	// more than a quarter of a CPU.
	s, err := e.Create(ctx, brig.Spec{Limits: brig.Limits{CPUs: 2}, Command: &brig.Command{Shell: "for i in 1 2 3 4; do while :; do :; done & done; wait"}})
	if err != nil {
		t.Fatal(err)
	}
	highest := 0.0
	for end := time.Now().Add(4 * promptTimeout); highest < 0.55 && time.Now().Before(end); {
		before, start := cpuTime(t, dataDirOf(t, e), s.ID), time.Now()
		time.Sleep(time.Second)
		highest = max(highest, (cpuTime(t, dataDirOf(t, e), s.ID)-before).Seconds()/time.Since(start).Seconds())
	}
	if highest < 0.55 {
		t.Errorf("four programs that spin use %.3f of two processors", highest)
	}
	attack.RecordMutant("RES-08", "four programs that spin, where half a processor is the limit of the test", "the limit", highest >= 0.55)
	if err := e.Remove(ctx, s.Spec.Name); err != nil {
		t.Error(err)
	}
}

// TestHeapWatcherDetectsTrustingReaders is the control for the hostile agent: the heap watcher
// detects a reader that trusts a length, and a reader without a limit.
//
//suite:part hostile
func TestHeapWatcherDetectsTrustingReaders(t *testing.T) {
	for _, what := range []string{"huge", "endless"} {
		peak, stop := watchHeap()
		var kept [][]byte
		switch what {
		case "huge":
			kept = append(kept, make([]byte, 200<<20))
		default:
			for range 200 {
				kept = append(kept, []byte(strings.Repeat("x", 1<<20)))
			}
		}
		for i := range kept {
			kept[i][0] = 1
		}
		for end := time.Now().Add(promptTimeout); peak.Load() <= 128*brig.MiB && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			kept[0][0]++
		}
		stop()
		if peak.Load() <= 128*brig.MiB {
			t.Errorf("%s: the heap is seen to have %d bytes", what, peak.Load())
		}
		attack.RecordMutant("GST-01", what, "bounds of what is read", peak.Load() > 128*brig.MiB)
	}
}
