package docker

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/brig-run/brig"
)

func TestEndIsNotOutOfMemoryBelowLimit(t *testing.T) {
	const limit = 64 << 20
	for _, c := range []struct {
		what string
		m    container.MemoryStats
		want bool
	}{
		{"v2, far from it", container.MemoryStats{Limit: limit, Usage: 1 << 20}, true},
		{"v2, out of memory", container.MemoryStats{Limit: limit, Failcnt: 1}, false},
		{"v1, far from it", container.MemoryStats{Limit: limit, MaxUsage: limit / 2}, true},
		{"v1, at the limit, and nobody counted", container.MemoryStats{Limit: limit, MaxUsage: limit}, false},
		{"v1, at the limit but for what is charged at once", container.MemoryStats{Limit: limit, MaxUsage: limit - 2<<20}, false},
		{"v1, counted", container.MemoryStats{Limit: limit, MaxUsage: limit / 2, Failcnt: 3}, false},
		{"no limit known", container.MemoryStats{}, false},
	} {
		if got := stayedBelowLimit(c.m); got != c.want {
			t.Errorf("%s: %t, want %t", c.what, got, c.want)
		}
	}
}

// TestNoteFileCompatibility verifies that the format of notes is compatible with earlier
// versions, in both directions.
func TestNoteFileCompatibility(t *testing.T) {
	f := folder{t.TempDir()}
	if err := f.notebook().Put("ex/1", []byte("note")); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(f.dir, "kept", "ZXgvMQ")
	if b, err := os.ReadFile(name); string(b) != `{"ID":"ex/1","Note":"bm90ZQ=="}` || err != nil {
		t.Errorf("the file contains %q, %v", b, err)
	}
	if b, err := f.notebook().Read(name); string(b) != "note" || err != nil {
		t.Errorf("the note is %q, %v", b, err)
	}
	if err := errors.Join(f.notebook().Put("ex/1", nil), f.notebook().Put("ex/1", nil)); err != nil {
		t.Error(err)
	}
	if _, err := f.notebook().Read(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed note: %v", err)
	}
}

// TestEndingFileCompatibility verifies that a server can read the ending record of an
// earlier version.
func TestEndingFileCompatibility(t *testing.T) {
	e := ending{Code: 3, Reason: brig.Exited, At: time.Unix(5, 0).UTC()}
	const want = `{"Code":3,"Reason":"exited","OOMKilled":false,"At":"1970-01-01T00:00:05Z"}`
	if b, err := json.Marshal(e); string(b) != want || err != nil {
		t.Errorf("the record is %s, %v; want %s", b, err, want)
	}
}
