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

// List returns up to the number of entries that the caller allows, including those of nested
// directories. A single entry more causes an error. The conformance suite of providers lists the
// maximum number of entries that brig allows.
func TestListRejectsExcessEntries(t *testing.T) {
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
		limit, depth int
		excess       bool
	}{{10, 2, false}, {9, 2, true}, {1, 1, false}, {0, 1, true}} {
		server, client := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, client) }()
		err := listDir(fsCall{FS: wire.FS{Path: wire.Path{Name: dir}, Max: c.limit, Depth: c.depth}, w: &writer{c: server}})
		server.Close()
		var callErr *callError
		if excess := errors.As(err, &callErr) && callErr.reported.Kind == "excess"; excess != c.excess || !c.excess && err != nil {
			t.Errorf("at most %d entries, %d deep: %v", c.limit, c.depth, err)
		}
	}
}
