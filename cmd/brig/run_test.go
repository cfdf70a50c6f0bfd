package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/brig-run/brig"
)

// TestArtifactsStayBelowDirectory checks that artifacts are saved below the directory, with
// their own subfolders, and nowhere else.
func TestArtifactsStayBelowDirectory(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	if err := saveArtifacts(out, []brig.File{{Path: "a.csv", Data: []byte("a")}, {Path: "deep/er/b.csv", Data: []byte("b")}}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a.csv": "a", "deep/er/b.csv": "b"} {
		if b, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(b) != want {
			t.Errorf("%s is %q, %v", name, b, err)
		}
	}
	if err := os.Symlink(dir, filepath.Join(out, "up")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../c.csv", "up/c.csv"} {
		if err := saveArtifacts(out, []brig.File{{Path: name, Data: []byte("c")}}); err == nil {
			t.Errorf("%s is saved", name)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "c.csv")); !os.IsNotExist(err) {
		t.Errorf("it has got out: %v", err)
	}
}
