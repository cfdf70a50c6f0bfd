package workspace_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/workspace"
)

// TestS3StagesSparsely checks that large files are staged in the configured
// directory before their upload. Holes use no space there, but are part of the
// upload.
func TestS3StagesSparsely(t *testing.T) {
	g := startGateway(t)
	g.o.Staging = filepath.Join(t.TempDir(), "new", "staging")
	o, err := workspace.OpenS3(t.Context(), g.o)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for name, parts := range map[string][][]byte{"middle": {[]byte("begin"), zeros, zeros, []byte("end")}, "end": {[]byte("begin"), zeros, zeros}} {
		s, err := o.Stage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Abort()
		for _, p := range parts {
			if _, err := s.Write(p); err != nil {
				t.Fatal(err)
			}
		}
		f, ok := s.(interface {
			Name() string
			Stat() (os.FileInfo, error)
		})
		if !ok || filepath.Dir(f.Name()) != g.o.Staging {
			t.Fatalf("%s: it is staged elsewhere", name)
		}
		st, err := f.Stat()
		if err != nil || st.Sys().(*syscall.Stat_t).Blocks*512 > 64<<10 {
			t.Errorf("%s: zeros take %d blocks, %v", name, st.Sys().(*syscall.Stat_t).Blocks, err)
		}
		if err := s.Publish(t.Context(), "t/a/blobs/"+name); err != nil {
			t.Fatal(err)
		}
		if got := readObject(t, o, "t/a/blobs/"+name); got != string(bytes.Join(parts, nil)) {
			t.Errorf("%s: %d bytes are another's", name, len(got))
		}
	}
}

// TestStagedBytesAreBounded checks that commits with large files wait for each
// other, but not for commits of another tenant. The size declared by a sandbox
// is not trusted.
func TestStagedBytesAreBounded(t *testing.T) {
	o, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	workspace.SetMaxMemoryWait(t, 20*time.Millisecond)
	ctx, s := t.Context(), workspace.New(o, nil)
	const size = 3 << 20
	s.SetStaged(size+size/2, 10*size)
	begin := func(tenant string) *workspace.Capture {
		t.Helper()
		c, err := s.Begin(ctx, tenant, "sb1", resolveUse(t, s, tenant, "data", 0), 0)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, tenant := range []string{"acme", "rival"} {
		if _, err := s.Create(ctx, tenant, "data"); err != nil {
			t.Fatal(err)
		}
	}
	file := func(declared int64) brig.Node {
		return brig.Node{Path: "f", Type: brig.RegularFile, Mode: 0o644, Size: declared}
	}
	content := strings.Repeat("x", size)
	one, two, rival := begin("acme"), begin("acme"), begin("rival")
	defer two.Close()
	defer rival.Close()
	rest, w := io.Pipe()
	added := make(chan error, 1)
	go func() { added <- one.Add(ctx, file(size), io.MultiReader(strings.NewReader(content), rest)) }()
	if _, err := w.Write([]byte("y")); err != nil { // now the first part is staged
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := two.Add(short, file(size), strings.NewReader(content)); err == nil {
		t.Error("two files are staged in the space of one")
	}
	if err := two.Add(ctx, file(1), strings.NewReader(content)); brig.KindOf(err) != brig.Unavailable {
		t.Errorf("a file that is larger than declared: %v", err)
	}
	if err := rival.Add(ctx, file(size), strings.NewReader(content)); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	w.Close()
	if err := <-added; err != nil {
		t.Error(err)
	}
	one.Close()
	if err := two.Add(ctx, file(size), strings.NewReader(content)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
