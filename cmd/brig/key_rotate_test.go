package main

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/sqlite"
)

// TestRotatedKeysAreInvalid checks that the old keys are invalid after a rotation, even after a
// restart, and that the audit log records the rotation.
func TestRotatedKeysAreInvalid(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	store, err := sqlite.Open(ctx, filepath.Join(dir, dbFile))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, k := range keyFileSpecs() {
		file := filepath.Join(dir, k.file)
		if err := k.rotate(ctx, dir, store); brig.KindOf(err) != brig.NotInitialized {
			t.Errorf("%s without a file: %v", k.name, err)
		}
		start := func() string {
			t.Helper()
			if err := k.make(ctx, dir, store); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(string(b))
		}
		good := func(secret string) bool {
			got, err := store.FindKey(ctx, sha256.Sum256([]byte(secret)))
			return err == nil && got.Kind == k.kind && got.Actor.Role == k.actor.Role
		}
		old := start()
		if file, name := keyInFile(dir)(fileKeyID(old)); file != k.file || name != k.name {
			t.Errorf("%s: the key is in %q", k.name, file)
		}
		if start() != old || !good(old) {
			t.Errorf("%s: a start changes the key", k.name)
		}
		if err := k.rotate(ctx, dir, store); err != nil {
			t.Fatal(err)
		}
		now := start()
		if now == old || good(old) || !good(now) {
			t.Errorf("%s: the old key is good: %v, the new one: %v", k.name, good(old), good(now))
		}
		if file, _ := keyInFile(dir)(fileKeyID(old)); file != "" {
			t.Errorf("%s: the old key is still in %s", k.name, file)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", k.name, info, err)
		}
	}
	events, err := store.Events(ctx, 9)
	if err != nil || len(events) != 2 || events[0].Op != brig.RotatedOp || events[0].Detail[brig.DetailName] != e2bKeyFile {
		t.Errorf("the log has %+v, %v", events, err)
	}
}
