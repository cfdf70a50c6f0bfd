package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/sqlite"
)

// crashPath is the environment variable with the path of the file to write. If
// it is set, TestCrash is the child process.
const crashPath = "BRIG_TEST_CRASH_PATH"

const (
	crashes  = 10 // the number of kills
	children = 2  // concurrent writers of the file
)

// TestCrash kills processes while they write, and verifies that every acknowledged record
// exists, with its execution and its event. It does not simulate a power failure, against which
// the store relies on synchronous=FULL.
func TestCrash(t *testing.T) {
	if path := os.Getenv(crashPath); path != "" {
		writeUntilKilled(t.Context(), path)
	}
	path := filepath.Join(t.TempDir(), "brig.db")
	var all []string
	for round := range crashes {
		var acked []string
		results := make(chan []string)
		for c := range children {
			// Each child is killed at a different point.
			go func() { results <- crashChild(t, path, fmt.Sprintf("r%d-c%d", round, c), 1+2*round+3*c) }()
		}
		for range children {
			acked = append(acked, <-results...)
		}
		check(t, path, acked)
		all = append(all, acked...)
	}
	check(t, path, all) // a later crash must not lose earlier records
	t.Logf("%d records were acknowledged by %d processes", len(all), crashes*children)
}

// crashChild runs a child until it has acknowledged n records, kills it, and returns
// the acknowledged records.
func crashChild(t *testing.T, path, prefix string, n int) []string {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrash$")
	cmd.Env = append(os.Environ(), crashPath+"="+path, "BRIG_TEST_CRASH_PREFIX="+prefix)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return nil
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return nil
	}
	var acked []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		acked = append(acked, lines.Text())
		if len(acked) == n {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	if len(acked) < n {
		t.Errorf("a child ended by itself: %v after %d records", cmd.ProcessState, len(acked))
	}
	return acked
}

// writeUntilKilled runs in the child process.
func writeUntilKilled(ctx context.Context, path string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
	}
	s, err := sqlite.Open(ctx, path)
	fail(err)
	for i := 0; ; i++ {
		r := record(i)
		name := fmt.Sprintf("%s-%d", os.Getenv("BRIG_TEST_CRASH_PREFIX"), i)
		r.ID, r.Spec.Name = brig.ID("id-"+name), name
		fail(s.Put(ctx, r, brig.Event{Op: name}))
		fail(s.PutExec(ctx, &brig.Execution{Sandbox: r.ID, Result: brig.Result{ExecID: name}}))
		r.State = brig.Ended
		fail(s.Put(ctx, r))
		fmt.Println(name) // not buffered: the parent reads only committed names
	}
}

func check(t *testing.T, path string, acked []string) {
	t.Helper()
	ctx := t.Context()
	s := openStore(t, path)
	defer s.Close()
	if got := sqlite.Pragma(t, s, "quick_check"); got != "ok" {
		t.Fatalf("quick_check: %s", got)
	}
	events, err := s.Events(ctx, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	noted := map[string]bool{}
	for _, e := range events {
		noted[e.Op] = true
	}
	for _, name := range acked {
		r, err := s.Get(ctx, "t", name)
		if err != nil || r.State != brig.Ended {
			t.Errorf("%s was acknowledged: %+v, %v", name, r, err)
			continue
		}
		if _, err := s.GetExec(ctx, r.ID, name); err != nil {
			t.Error(err)
		}
		if !noted[name] {
			t.Errorf("%s has no event", name)
		}
	}
	// An unacknowledged write may exist, but only together with its event.
	if err := s.All(ctx, func(r *brig.Record) error {
		if !noted[r.Spec.Name] {
			t.Errorf("%s is there without its event", r.Spec.Name)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
