package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/sqlite"
	"github.com/brig-run/brig/store/storetest"
)

func openStore(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func record(i int) *brig.Record {
	return &brig.Record{
		Sandbox: brig.Sandbox{
			ID: brig.ID(fmt.Sprintf("id-%08d", i)), Tenant: "t", State: brig.Running, Created: time.Now(),
			Spec: brig.Spec{
				Name: fmt.Sprintf("n%d", i), Image: "host", Env: map[string]string{"A": "b"},
				Labels: map[string]string{"app": "web", "env": "prod"},
			},
		},
		Handle: brig.Handle{Provider: "gvisor", Version: 1, State: make([]byte, 200)},
	}
}

// migrated returns the content of an empty store file. The content is created only once,
// because migrations take most of the time to open a new file.
var migrated = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "brig-store-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "brig.db")
	s, err := sqlite.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// writeMigrated writes a copy of the migrated file to path.
func writeMigrated(t testing.TB, path string) {
	t.Helper()
	b, err := migrated()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) brig.Store {
		path := filepath.Join(t.TempDir(), "brig.db")
		writeMigrated(t, path)
		return openStore(t, path)
	})
}

// TestConcurrentStores checks the interaction of processes, with two stores on
// one file.
func TestConcurrentStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "brig.db")
	a, b := openStore(t, path), openStore(t, path)
	ctx := t.Context()
	r := record(1)
	if err := a.Put(ctx, r); err != nil {
		t.Fatal(err)
	}
	stale, err := b.Get(ctx, "t", "n1")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Put(ctx, r); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(ctx, stale); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("a stale Put through the other store: %v", err)
	}
	if now, err := b.Get(ctx, "t", "n1"); err != nil || now.Rev != r.Rev {
		t.Errorf("after a Put through the other store: %+v, %v", now, err)
	}
	done := make(chan error, 2)
	for i, s := range []*sqlite.Store{a, b} {
		go func() {
			for j := range 20 {
				if err := s.Put(ctx, record(100*(i+1)+j)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	page, _, err := b.List(ctx, "t", brig.ListOptions{Limit: 1000})
	if err != nil || len(page) != 41 {
		t.Errorf("%d records, %v", len(page), err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Get(ctx, "t", "n1"); err != nil {
		t.Errorf("after the other store was closed: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := a.Get(ctx, "t", "n1"); err == nil {
		t.Error("a closed store answers")
	}
}

// TestReopen verifies that a path that needs escaping works, that records outlive Close, and
// that the files have the correct permissions.
func TestReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "a b?c%20d#e&f")
	path := filepath.Join(dir, "brig.db?mode=memory")
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), record(1)); err != nil {
		t.Fatal(err)
	}
	modes(t, dir, 5) // the database, its lock, WAL, shared memory and outputs directory
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, path)
	modes(t, dir, 0)
	if _, err := s.Get(t.Context(), "t", "n1"); err != nil {
		t.Error(err)
	}
}

// modes verifies that dir has at least min files, and that only the owner can read dir and its
// files.
func modes(t *testing.T, dir string, min int) {
	t.Helper()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info.Mode(), err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < min {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		want := fs.FileMode(0o600)
		if f.IsDir() {
			want = 0o700
		}
		if info, err := f.Info(); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Run("newer schema", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "brig.db")
		openStore(t, path).Close()
		execSQL(t, path, `insert into goose_db_version (version_id, is_applied) values (99, 1)`)
		_, err := sqlite.Open(t.Context(), path)
		if brig.KindOf(err) != brig.InvalidConfig {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no database", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "brig.db")
		if err := os.WriteFile(path, []byte(strings.Repeat("this is a letter\n", 500)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := sqlite.Open(t.Context(), path)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("directory", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.Open(t.Context(), dir); err == nil {
			t.Error("a directory was opened")
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("it is now %v, %v", info.Mode(), err)
		}
	})
}

// execSQL executes one statement directly, without the store.
func execSQL(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedDocument verifies that a document with a reference beyond the end of its bytes
// causes an error and not a panic.
func TestDamagedDocument(t *testing.T) {
	path := filepath.Join(t.TempDir(), "brig.db")
	s := openStore(t, path)
	if err := s.Put(t.Context(), record(1)); err != nil {
		t.Fatal(err)
	}
	execSQL(t, path, `update sandboxes set data = x'00'`)
	if r, err := s.Get(t.Context(), "t", "n1"); err == nil || brig.KindOf(err) != brig.Internal {
		t.Errorf("got %v, %v", r, err)
	}
}

// TestDurabilityPragmas verifies the settings on which durability depends.
func TestDurabilityPragmas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "brig.db")
	s := openStore(t, path)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		if got := sqlite.Pragma(t, s, pragma); got != want {
			t.Errorf("%s is %s, want %s", pragma, got, want)
		}
	}
}

// TestLibc verifies that SQLite is built with the libc version for which it was translated.
// Another version would compile but corrupt data.
func TestLibc(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "modernc.org/sqlite").Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Skipf("the source of modernc.org/sqlite is not at hand: %v", err)
	}
	theirs, ours := libc(t, filepath.Join(dir, "go.mod")), libc(t, filepath.Join("..", "..", "go.mod"))
	if theirs != ours {
		t.Errorf("go.mod has modernc.org/libc %s, modernc.org/sqlite wants %s", ours, theirs)
	}
}

func libc(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^\s*(?:require\s+)?modernc\.org/libc (v\S+)`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s does not require modernc.org/libc", file)
	}
	return string(m[1])
}

func BenchmarkPut(b *testing.B) {
	ctx := b.Context()
	event := brig.Event{At: time.Now(), Op: "sandbox.create", Actor: "ann", Tenant: "t", Phase: brig.Intent}
	b.Run("insert", func(b *testing.B) {
		s := openStore(b, filepath.Join(b.TempDir(), "brig.db"))
		for i := 0; b.Loop(); i++ {
			if err := s.Put(ctx, record(i), event); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("update", func(b *testing.B) {
		s := openStore(b, filepath.Join(b.TempDir(), "brig.db"))
		r := record(1)
		for b.Loop() {
			if err := s.Put(ctx, r, event); err != nil {
				b.Fatal(err)
			}
		}
	})
}
