package builder

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func hashOf(c string) string { return strings.Repeat(c, 64) }

// An actor's uploads are bound in size, are not those of other tenants or of a former tenant of the
// same name, and the least recently used ones make room.
func TestUploads(t *testing.T) {
	now := time.Unix(1000, 0)
	dir := filepath.Join(t.TempDir(), "uploads")
	u, err := newUploads(dir, 2*minUpload, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	alice := brig.Actor{Tenant: "alice", Founded: time.Unix(1, 0)}
	put := func(a brig.Actor, hash string, n int) error {
		now = now.Add(time.Minute)
		err := u.put(a, hash, int64(n), strings.NewReader(strings.Repeat("x", n)))
		if err == nil { // the file system's clock is not ours
			err = os.Chtimes(filepath.Join(u.folder(a), hash), now, now)
		}
		return err
	}
	has := func(a brig.Actor, hash string) bool {
		now = now.Add(time.Minute)
		f, err := u.open(a, hash)
		if err == nil {
			f.Close()
		}
		return err == nil
	}
	for _, h := range []string{"a", "b"} {
		if err := put(alice, hashOf(h), 40); err != nil {
			t.Fatal(err)
		}
	}
	if !has(alice, hashOf("a")) { // a is now used later than b
		t.Error("an upload is lost")
	}
	if err := put(alice, hashOf("c"), 40); err != nil {
		t.Fatal(err)
	}
	if !has(alice, hashOf("a")) || has(alice, hashOf("b")) || !has(alice, hashOf("c")) {
		t.Error("the least recently used upload did not make room")
	}
	if err := put(alice, hashOf("d"), 2*minUpload+1); brig.KindOf(err) != brig.RateLimited || !has(alice, hashOf("a")) {
		t.Errorf("an upload that is too large: %v", err)
	}
	for _, other := range []brig.Actor{{Tenant: "bob", Founded: alice.Founded}, {Tenant: "alice", Founded: time.Unix(2, 0)}} {
		if has(other, hashOf("a")) {
			t.Errorf("%+v has the files of another tenant", other)
		}
	}
}

// An upload that ends early, or is longer than it says, leaves nothing.
func TestBrokenUploadLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	u, err := newUploads(dir, minUpload, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	a := brig.Actor{Tenant: "alice"}
	for name, body := range map[string]io.Reader{
		"short": strings.NewReader("x"), "long": strings.NewReader(strings.Repeat("x", 20)),
		"broken": io.MultiReader(strings.NewReader("x"), brokenReader{}),
	} {
		if err := u.put(a, hashOf("a"), 10, body); brig.KindOf(err) != brig.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(left) > 0 || len(u.busy) > 0 {
		t.Errorf("%q and %v are left, %v", left, u.busy, err)
	}
	if err := u.put(a, hashOf("a"), 10, strings.NewReader("0123456789")); err != nil { // control
		t.Fatal(err)
	}
	partial := filepath.Join(u.folder(a), hashOf("a")+".1.partial")
	if err := os.WriteFile(partial, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newUploads(dir, minUpload, time.Now); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(partial); err == nil {
		t.Error("an upload that a crash interrupted is left")
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("the client has disconnected") }

// Archives that were not used for a long time are removed at the next start, also those of tenants
// that do not exist any more.
func TestUnusedUploadsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	u, err := newUploads(dir, minUpload, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for tenant, age := range map[string]time.Duration{"old": 8 * 24 * time.Hour, "new": 6 * 24 * time.Hour} {
		a := brig.Actor{Tenant: tenant}
		if err := u.put(a, hashOf("a"), 1, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
		used := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(u.folder(a), hashOf("a")), used, used); err != nil {
			t.Fatal(err)
		}
	}
	if u, err = newUploads(dir, minUpload, time.Now); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 1 || left[0] != u.folder(brig.Actor{Tenant: "new"}) {
		t.Errorf("the folders %q are left, %v", left, err)
	}
}
