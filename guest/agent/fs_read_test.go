package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/brig-run/brig/guest/wire"
)

// List returns up to the number of entries that the caller allows, including
// entries of nested directories. One more entry is an error. The conformance
// suite of providers lists as many entries as brig allows.
func TestListBound(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if err := os.WriteFile(filepath.Join(dir, "a", fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		most, depth int
		excess      bool
	}{{10, 2, false}, {9, 2, true}, {1, 1, false}, {0, 1, true}} {
		server, client := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, client) }()
		err := listDir(fsCall{FS: wire.FS{Path: wire.Path{Name: dir}, Max: c.most, Depth: c.depth}, w: &writer{c: server}})
		server.Close()
		var told *callError
		if excess := errors.As(err, &told) && told.reported.Kind == "excess"; excess != c.excess || !c.excess && err != nil {
			t.Errorf("at most %d entries, %d deep: %v", c.most, c.depth, err)
		}
	}
}
