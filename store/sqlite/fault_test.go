package sqlite_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/store/sqlite"
)

// faultPath is the environment variable with the path of the file to write. If
// it is set, TestDiskFaults is the child process.
const faultPath = "BRIG_TEST_FAULT_PATH"

// faultRounds is the number of sandboxes and runs that the child records.
const faultRounds = 6

// TestDiskFaults makes the kernel fail the k-th write or the k-th flush of a process that
// writes an engine's records. It verifies that the process receives the error and continues,
// and that every acknowledged write exists.
func TestDiskFaults(t *testing.T) {
	if path := os.Getenv(faultPath); path != "" {
		// strace counts the calls of each thread.
		runtime.LockOSThread()
		writeThroughFault(t.Context(), path)
		os.Exit(0)
	}
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace, which makes the kernel fail")
	}
	if err := exec.Command("strace", "-qq", "-o", "/dev/null", "true").Run(); err != nil {
		t.Skipf("strace may not trace here: %v", err)
	}
	step := testenv.Size(25, 5) // each fault takes a second with the race detector
	for _, c := range []struct {
		call, err, when string
		fresh           bool // whether the file is created while the fault is active
	}{
		{"pwrite64", "EIO", "", false},
		{"pwrite64", "ENOSPC", "", false},
		{"pwrite64", "ENOSPC", "+", false},
		{"fsync", "EIO", "", false},
		{"fsync", "EIO", "+", false},
		{"pwrite64", "ENOSPC", "", true},
		{"fsync", "EIO", "", true},
	} {
		name := c.call + " " + c.err
		if c.when != "" {
			name += " for good"
		}
		if c.fresh {
			name += " of a new file"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried, acked := 0, 0
			for k := 1; k <= 200; k += step {
				n, reached := faultAt(t, fmt.Sprintf("%s:error=%s:when=%d%s", c.call, c.err, k, c.when), c.call, c.fresh)
				if !reached {
					break // the child makes fewer such calls
				}
				tried, acked = tried+1, acked+n
			}
			t.Logf("%d faults, %d writes acknowledged, none lost", tried, acked)
		})
	}
}

// faultAt runs a child with one fault and checks the resulting database.
func faultAt(t *testing.T, inject, call string, fresh bool) (acked int, reached bool) {
	t.Helper()
	dir := t.TempDir()
	path, trace := filepath.Join(dir, "brig.db"), filepath.Join(dir, "trace")
	if !fresh {
		writeMigrated(t, path)
	}
	cmd := exec.CommandContext(t.Context(), "strace", "-f", "--seccomp-bpf", "-qq", "-o", trace, "-e", "trace="+call, "-e", "inject="+inject,
		os.Args[0], "-test.run=^TestDiskFaults$")
	cmd.Env = append(os.Environ(), faultPath+"="+path)
	out, err := cmd.Output()
	forGood := strings.HasSuffix(inject, "+")
	if err != nil && !forGood {
		t.Errorf("%s: the child: %v: %s", inject, err, out)
	}
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	// Each thread may have one fault, because another thread performs the later flushes.
	faults := bytes.Count(b, []byte("(INJECTED)"))
	reached = faults > 0
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(out) == 0 {
		t.Errorf("%s: the child says nothing", inject)
	}
	s := openStore(t, path)
	defer s.Close()
	if got := sqlite.Pragma(t, s, "quick_check"); got != "ok" {
		t.Fatalf("%s: quick_check: %s", inject, got)
	}
	failed := 0
	for _, line := range lines {
		what, name, _ := strings.Cut(line, " ")
		if what == "failed" {
			failed++
			continue
		}
		acked++
		if what == "forgotten" && !slices.Contains(lines, "made "+name) {
			continue // a write that returned an error may still exist
		}
		if err := checkContains(t.Context(), s, what, name); err != nil {
			t.Errorf("%s: %q was acknowledged: %v\n%s", inject, line, err, out)
		}
	}
	if last := fmt.Sprintf("forgotten n%d", faultRounds-1); !forGood && !slices.Contains(lines, last) {
		t.Errorf("%s: it did not go on after the fault: %s", inject, out)
	}
	if failed > faults && !forGood {
		t.Errorf("%s: %d faults and %d failures: %s", inject, faults, failed, out)
	}
	if err := s.Put(t.Context(), record(99)); err != nil {
		t.Errorf("%s: a write afterwards: %v", inject, err)
	}
	return acked, reached
}

// writeThroughFault runs in the child process. It writes the same records as an engine, retries
// a failed write once, and prints each acknowledgement.
func writeThroughFault(ctx context.Context, path string) {
	var s *sqlite.Store
	do := func(what string, f func() error) {
		err := f()
		if err != nil {
			fmt.Println("failed", what, strings.ReplaceAll(err.Error(), "\n", " "))
			err = f()
		}
		if err != nil {
			fmt.Println("failed", what, "again:", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println(what)
		}
	}
	do("opened", func() (err error) { s, err = sqlite.Open(ctx, path); return err })
	if s == nil {
		os.Exit(1)
	}
	for i := range faultRounds {
		r, name := record(i), fmt.Sprintf("n%d", i)
		r.State = brig.Creating
		do("created "+name, func() error { return s.Put(ctx, r, brig.Event{At: time.Now(), Op: "create " + name}) })
		r.State = brig.Running
		do("running "+name, func() error { return s.Put(ctx, r) })
		do("exec "+name, func() error {
			return s.PutExec(ctx, &brig.Execution{Sandbox: r.ID, Result: brig.Result{ExecID: name}})
		})
		do("event "+name, func() error { return s.Append(ctx, brig.Event{At: time.Now(), Op: "event " + name}) })
		one := record(1000 + i)
		one.Spec.Name = "run-" + name
		do("begun "+name, func() error { return s.Soon().Put(ctx, one) })
		do("ran "+name, func() error {
			return s.EndRun(ctx, one.ID, "t", &brig.Outcome{Sandbox: "run-" + name}, brig.Event{At: time.Now(), Op: "ran " + name})
		})
		deleted := record(2000 + i)
		deleted.Spec.Name = "gone-" + name
		do("made "+name, func() error { return s.Put(ctx, deleted) })
		do("forgotten "+name, func() error { return s.Delete(ctx, deleted.ID) })
	}
}

// checkContains checks that the store contains an acknowledged write.
func checkContains(ctx context.Context, s *sqlite.Store, what, name string) error {
	event := func(op string) error {
		events, err := s.Events(ctx, 1<<20)
		if err == nil && !slices.ContainsFunc(events, func(e brig.Event) bool { return e.Op == op }) {
			err = fmt.Errorf("no event %q", op)
		}
		return err
	}
	switch what {
	case "created":
		if _, err := s.Get(ctx, "t", name); err != nil {
			return err
		}
		return event("create " + name)
	case "running":
		r, err := s.Get(ctx, "t", name)
		if err == nil && r.State != brig.Running {
			err = fmt.Errorf("it is %s", r.State)
		}
		return err
	case "exec":
		r, err := s.Get(ctx, "t", name)
		if err == nil {
			_, err = s.GetExec(ctx, r.ID, name)
		}
		return err
	case "event":
		return event("event " + name)
	case "ran":
		if _, err := s.GetRun(ctx, "t", "run-"+name); err != nil {
			return err
		}
		if r, err := s.Get(ctx, "t", "run-"+name); brig.KindOf(err) != brig.NotFound {
			return fmt.Errorf("its record is there: %+v, %v", r, err)
		}
		return event("ran " + name)
	case "forgotten":
		if r, err := s.Get(ctx, "t", "gone-"+name); brig.KindOf(err) != brig.NotFound {
			return fmt.Errorf("it is there: %+v, %v", r, err)
		}
	}
	return nil
}
