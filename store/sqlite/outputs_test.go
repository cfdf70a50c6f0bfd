package sqlite_test

import (
	"bytes"
	"database/sql"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/sqlite"
)

// noisyExecution returns an execution with size bytes of output.
func noisyExecution(sandbox brig.ID, name string, size int) *brig.Execution {
	x := &brig.Execution{Sandbox: sandbox, Result: brig.Result{ExecID: name, Started: time.Now().UTC(), Done: true}}
	x.Stdout = brig.Output{Head: bytes.Repeat([]byte("h"), size), Total: int64(size)}
	return x
}

// disk returns the disk usage of a directory, as du reports it.
func disk(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func files(t *testing.T, path string) int {
	t.Helper()
	list, err := os.ReadDir(path + "-outputs")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestTrimFreesDisk writes output as fast as the store accepts it. It measures the disk usage
// of the directory during trimming and after the sandbox is deleted. Control: the same writes
// without trimming.
func TestTrimFreesDisk(t *testing.T) {
	const (
		size  = 256 << 10
		count = 200
		bound = 8 << 20
	)
	keep := brig.Keep{Executions: 1000, Outputs: 1000, Runs: 1000, Bytes: bound}
	for name, trimmed := range map[string]bool{"bounded": true, "control": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "brig.db")
			writeMigrated(t, path)
			s, ctx := openStore(t, path), t.Context()
			r := record(1)
			if err := s.Put(ctx, r); err != nil {
				t.Fatal(err)
			}
			empty, largest := disk(t, dir), int64(0)
			for i := range count {
				if err := s.PutExec(ctx, noisyExecution(r.ID, fmt.Sprint("x", i), size)); err != nil {
					t.Fatal(err)
				}
				if trimmed {
					if err := s.Trim(ctx, "t", r.ID, keep); err != nil {
						t.Fatal(err)
					}
				}
				largest = max(largest, disk(t, dir)-empty)
			}
			t.Logf("%d MiB of output took at most %d KiB of the disk", count*size>>20, largest>>10)
			// Allow one output beyond the bound, and SQLite's own data.
			if within := largest <= bound+2*size+(6<<20); within != trimmed {
				t.Errorf("it took at most %d bytes of the disk, the bound is %d", largest, bound)
			}
			if err := s.Delete(ctx, r.ID); err != nil {
				t.Fatal(err)
			}
			if err := s.Tidy(ctx); err != nil {
				t.Fatal(err)
			}
			left := disk(t, dir) - empty
			t.Logf("%d KiB are left of it", left>>10)
			if n := files(t, path); n != 0 || left > 6<<20 {
				t.Errorf("%d files and %d bytes are left of what was deleted", n, left)
			}
		})
	}
}

// TestOrphanFiles verifies that an old file without a row is deleted, and that an execution
// whose file is missing reports the loss.
func TestOrphanFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "brig.db")
	s, ctx := openStore(t, path), t.Context()
	r := record(1)
	if err := s.Put(ctx, r); err != nil {
		t.Fatal(err)
	}
	x := noisyExecution(r.ID, "x", 100_000)
	if err := s.PutExec(ctx, x); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(path + "-outputs")
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	theirs := filepath.Join(path+"-outputs", list[0].Name())
	past := time.Now().Add(-time.Hour)
	for name, old := range map[string]bool{"stray": true, "young": false} {
		file := filepath.Join(path+"-outputs", name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if old {
			if err := os.Chtimes(file, past, past); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chtimes(theirs, past, past); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, path)
	if _, err := os.Stat(filepath.Join(path+"-outputs", "stray")); err == nil {
		t.Error("a file without a row is still there after a start")
	}
	if n := files(t, path); n != 2 {
		t.Errorf("%d files, want the execution's and the one that is being written", n)
	}
	if got, err := s.GetExec(ctx, r.ID, "x"); err != nil || len(got.Stdout.Head) != 100_000 {
		t.Errorf("the execution: %v", err)
	}
	if err := os.Truncate(theirs, 10); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"cut short", "removed"} {
		got, err := s.GetExec(ctx, r.ID, "x")
		if err != nil || got.Stdout.Head != nil || !got.Truncated() || !got.Done {
			t.Errorf("an execution of which the file was %s: %+v, %v", how, got, err)
		}
		os.Remove(theirs)
	}
}

// TestNoFileWithoutRow checks that a failed write leaves no file.
func TestNoFileWithoutRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "brig.db")
	s, ctx := openStore(t, path), t.Context()
	if err := s.PutExec(ctx, noisyExecution("nobody", "x", 100_000)); brig.KindOf(err) != brig.NotFound {
		t.Errorf("of no sandbox: %v", err)
	}
	execSQL(t, path, `create trigger broken before insert on runs begin select raise(abort, 'broken'); end`)
	o := &brig.Outcome{Sandbox: "n", Artifacts: []brig.File{{Path: "a", Data: make([]byte, 100_000)}}}
	if err := s.PutRun(ctx, "t", o); brig.KindOf(err) != brig.Internal {
		t.Errorf("PutRun = %v", err)
	}
	if n := files(t, path); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

// TestMigrateOldFile verifies the migration of a file from an older version of Brig, which has
// outputs in its rows, mostly free pages, and no incremental vacuum.
func TestMigrateOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "brig.db")
	createOldDatabase(t, path)
	before := disk(t, dir)
	s, ctx := openStore(t, path), t.Context()
	if mode := sqlite.Pragma(t, s, "auto_vacuum"); mode != "2" {
		t.Errorf("auto_vacuum is %s", mode)
	}
	for i := range 20 {
		x, err := s.GetExec(ctx, "id-old", fmt.Sprint("x", i))
		if err != nil || string(x.Stdout.Head) != string(bytes.Repeat([]byte{'o'}, 100_000)) || !x.Done {
			t.Fatalf("execution %d: %v", i, err)
		}
	}
	small, err := s.GetExec(ctx, "id-old", "small")
	if err != nil || string(small.Stdout.Head) != "ooo" {
		t.Errorf("the small one: %+v, %v", small, err)
	}
	o, err := s.GetRun(ctx, "t", "run")
	if err != nil || len(o.Stdout.Head) != 100_000 {
		t.Errorf("the outcome: %v", err)
	}
	if n := files(t, path); n != 21 {
		t.Errorf("%d files, want one for each large output", n)
	}
	if after := disk(t, dir); after > before/2 {
		t.Errorf("the folder takes %d bytes, before it was brought up %d", after, before)
	}
	t.Logf("the folder took %d KiB, and takes %d KiB now", before>>10, disk(t, dir)>>10)
	if got := sqlite.Pragma(t, s, "quick_check"); got != "ok" {
		t.Errorf("quick_check: %s", got)
	}
	// Migrated outputs count towards the bound.
	if err := s.Trim(ctx, "t", "id-old", brig.Keep{Executions: 1000, Outputs: 1000, Runs: 1000, Bytes: 500_000}); err != nil {
		t.Fatal(err)
	}
	if n := files(t, path); n > 5 {
		t.Errorf("%d files after trimming to 500000 bytes", n)
	}
}

// createOldDatabase creates a database with the schema of the version before outputs were
// stored in files.
func createOldDatabase(t *testing.T, path string) {
	t.Helper()
	ctx := t.Context()
	db, err := sql.Open("sqlite", "file:"+path+"?_journal_mode=WAL")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p, err := goose.NewProvider(goose.DialectSQLite3, db, os.DirFS("migrations"),
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(ctx, 7); err != nil {
		t.Fatal(err)
	}
	do := func(q string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(ctx, q, args...); err != nil {
			t.Fatal(err)
		}
	}
	do(`insert into sandboxes (id, tenant, name, state, digest, created_ns, expires_ns, rev, doc, data)
		values ('id-old', 't', 'old', 'running', '', 0, 0, 1, '{"ID":"id-old","Tenant":"t","Spec":{"Name":"old"},"Handle":{"State":null}}', x'')`)
	exec := func(name string, n int) {
		at := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "[0,%d]", n))
		doc := fmt.Sprintf(`{"Sandbox":"id-old","ExecID":%q,"Done":true,"Stdout":{"Head":%q,"Tail":null,"Total":%d},"Stderr":{"Head":null,"Tail":null}}`, name, at, n)
		do(`insert into executions (sandbox, id, started_ns, doc, data) values ('id-old', $1, 1, $2, $3)`, name, doc, bytes.Repeat([]byte{'o'}, n))
	}
	for i := range 20 {
		exec(fmt.Sprint("x", i), 100_000)
	}
	exec("small", 3)
	for i := range 100 {
		exec(fmt.Sprint("gone", i), 100_000)
	}
	do(`delete from executions where id like 'gone%'`)
	do(`insert into runs (tenant, name, put_ns, doc, data) values ('t', 'run', 2,
		'{"Sandbox":"run","Stdout":{"Head":"WzAsMTAwMDAwXQ==","Tail":null,"Total":100000},"Stderr":{"Head":null,"Tail":null}}', $1)`, bytes.Repeat([]byte{'o'}, 100_000))
}

// TestFileShrinks verifies that the database shrinks after rows without files are deleted.
func TestFileShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "brig.db")
	writeMigrated(t, path)
	s, ctx := openStore(t, path), t.Context()
	size := func() (sum int64) {
		for _, name := range []string{path, path + "-wal"} {
			if info, err := os.Stat(name); err == nil {
				sum += info.Size()
			}
		}
		return sum
	}
	for i := range 200 {
		r := record(i)
		r.Spec.Env = map[string]string{"LARGE": string(bytes.Repeat([]byte("x"), 200_000))}
		if err := s.Put(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	full := size()
	for i := range 200 {
		if err := s.Delete(ctx, record(i).ID); err != nil {
			t.Fatal(err)
		}
	}
	// Control: without Tidy, the file keeps its size.
	if kept := size(); kept < full/2 {
		t.Errorf("%d bytes of %d are left by themselves", kept, full)
	}
	for range 4 {
		if err := s.Tidy(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d KiB of %d KiB are left, %s free pages of %s", size()>>10, full>>10, sqlite.Pragma(t, s, "freelist_count"), sqlite.Pragma(t, s, "page_count"))
	if left := size(); left > 3<<20 {
		t.Errorf("%d bytes of %d are left", left, full)
	}
	if got := sqlite.Pragma(t, s, "quick_check"); got != "ok" {
		t.Errorf("quick_check: %s", got)
	}
}
