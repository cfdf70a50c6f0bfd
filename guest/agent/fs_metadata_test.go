package agent

import (
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Extended attributes with E2B's prefix are read as the file's metadata, and metadata that the host
// sets is stored in these attributes.
func TestMetadataUsesE2BAttributes(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	set := func(attribute, value string) {
		t.Helper()
		if err := syscall.Setxattr(name, attribute, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, m map[string]string) {
		t.Helper()
		if got := readMetadata(name); !maps.Equal(got, m) {
			t.Errorf("%s: metadata is %v, not %v", what, got, m)
		}
	}
	set("user.e2b.author", "a program")
	set("user.other", "no")
	want("set by a program", map[string]string{"author": "a program"})

	if err := setMetadata(f, map[string]string{"old": "new", "stage": "written"}); err != nil {
		t.Fatal(err)
	}
	want("set by us", map[string]string{"old": "new", "stage": "written"})
	b := make([]byte, 100)
	if n, err := syscall.Getxattr(name, "user.e2b.stage", b); err != nil || string(b[:n]) != "written" {
		t.Errorf("a program reads %q, %v", b[:max(n, 0)], err)
	}
	if err := setMetadata(f, nil); err != nil {
		t.Fatal(err)
	}
	want("taken away", nil)
}
