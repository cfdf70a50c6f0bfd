package sqlite_test

import (
	"errors"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
	"github.com/brig-run/brig/store/sqlite"
)

// birth is the time of the events of these tests.
var birth = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

// verifyChain verifies a tenant's chain on disk.
func verifyChain(t *testing.T, s *sqlite.Store) error {
	t.Helper()
	heads, err := s.AuditHeads(t.Context())
	if err != nil || len(heads) != 1 {
		t.Fatalf("%+v, %v", heads, err)
	}
	lines, err := s.Audit(t.Context(), "t", brig.AuditQuery{Limit: 1000})
	if err != nil || len(lines) == 0 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	v := audit.Verifier{Begins: lines[0].Seq}
	for _, l := range lines {
		if err := v.Add(l); err != nil {
			return err
		}
	}
	return v.End(&heads[0])
}

// TestTamperedFile verifies that every modification of the file is detected. After each
// modification, the test restores the file.
func TestTamperedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "brig.db")
	s := openStore(t, path)
	for i := range 20 {
		e := brig.Event{At: birth, Op: "op" + strconv.Itoa(i), Tenant: "t", Actor: "ann", Phase: brig.Intent, Detail: map[string]string{"k": strconv.Itoa(i)}}
		if err := s.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := verifyChain(t, s); err != nil {
		t.Fatal(err)
	}
	execSQL(t, path, `create table kept as select * from events`)
	for statement, want := range map[string]int64{
		`update events set actor = 'bob' where n = 7`:                               7,
		`update events set op = 'x' where n = 1`:                                    1,
		`update events set at = '2020-01-01T00:00:00Z' where n = 20`:                20,
		`update events set detail = '{"k":"x"}' where n = 9`:                        9,
		`update events set sandbox = 'sb' where n = 4`:                              4,
		`update events set hash = zeroblob(32) where n = 5`:                         5,
		`update events set prev = zeroblob(32) where n = 6`:                         6,
		`delete from events where n = 1`:                                            1,
		`delete from events where n between 8 and 12`:                               8,
		`delete from events where n = 20`:                                           20,
		`update events set n = case n when 3 then 30 else 3 end where n in (3, 14)`: 3,
		`update events set tenant = 'u' where n = 11`:                               11,
	} {
		execSQL(t, path, statement)
		bad, found := errors.AsType[*audit.InvalidRecord](verifyChain(t, s))
		if !found || bad.Seq != want {
			t.Errorf("%s: %v, want record %d", statement, bad, want)
		}
		execSQL(t, path, `delete from events`)
		execSQL(t, path, `insert into events select * from kept`)
		if err := verifyChain(t, s); err != nil {
			t.Fatalf("after %s was undone: %v", statement, err)
		}
	}
}

// TestChainContinuesAfterReopenAndPruning checks that a chain continues after the store is reopened,
// and after lines were pruned.
func TestChainContinuesAfterReopenAndPruning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "brig.db")
	for i := range 4 {
		s := openStore(t, path)
		if err := s.Append(t.Context(), brig.Event{At: birth, Op: strconv.Itoa(i), Tenant: "t"}); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if err := s.PruneAudit(t.Context(), birth.Add(1), 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := verifyChain(t, s); err != nil {
			t.Errorf("store %d: %v", i, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
