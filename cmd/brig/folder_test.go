package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/sqlite"
)

// TestForeignDataFolderIsRejected checks that a data folder is rejected, with a hint, if another
// user owns it, may write to it or may replace it.
func TestForeignDataFolderIsRejected(t *testing.T) {
	me := os.Geteuid()
	for name, c := range map[string]struct {
		folder, above os.FileMode
		uid           int
		hint          string // "" if the directory is accepted
	}{
		"our own":                     {0o700, 0o755, me, ""},
		"others may read":             {0o755, 0o755, me, ""},
		"the group may write":         {0o770, 0o755, me, "chmod go-w"},
		"everybody may write":         {0o707, 0o755, me, "chmod go-w"},
		"another user's":              {0o700, 0o755, me + 1, "chown"},
		"below what everybody writes": {0o700, 0o777, me, "chmod o-w"},
		"below a sticky folder":       {0o700, 0o777 | os.ModeSticky, me, ""},
	} {
		above := filepath.Join(t.TempDir(), "above")
		dir := filepath.Join(above, "data")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chmod(above, c.above), os.Chmod(dir, c.folder)); err != nil {
			t.Fatal(err)
		}
		err := checkFolder(dir, c.uid)
		if c.hint == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if e := brig.AsError(err); e == nil || e.Kind != brig.NotInitialized || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoWritesThroughSymlinks checks that the server does not write through a
// symlink in the data folder.
func TestNoWritesThroughSymlinks(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	const before = "the victim's"
	for name, write := range map[string]func(dir string){
		keyFile:    func(dir string) { _ = writeSecret(filepath.Join(dir, keyFile), []byte("x")) },
		serverFile: func(dir string) { _ = writeSecret(filepath.Join(dir, serverFile), []byte("x")) },
		ownerFile: func(dir string) {
			if f, err := tryLock(dir); err == nil {
				t.Error("a lock is taken through a symlink")
				f.Close()
			}
		},
		dbFile: func(dir string) {
			if s, err := sqlite.Open(context.Background(), filepath.Join(dir, dbFile)); err == nil {
				t.Error("a database is opened through a symlink")
				_ = s.Close()
			}
		},
	} {
		if err := os.WriteFile(victim, []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := errors.Join(os.Chmod(dir, 0o700), os.Symlink(victim, filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
		write(dir)
		info, err := os.Stat(victim)
		if b, rerr := os.ReadFile(victim); err != nil || rerr != nil || string(b) != before || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: the victim is %q, %v, %v", name, b, info.Mode(), err)
		}
	}
	// As a control, a plain write to the file name follows the link.
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Symlink(victim, link), os.WriteFile(link, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "x" {
		t.Errorf("the control does not write through the symlink: %q, %v", b, err)
	}
}
