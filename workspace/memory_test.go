package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/workspace"
)

// liveHeap returns the size of all reachable heap objects.
func liveHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// measuringObjects wraps Objects and measures the heap during reads and
// writes.
type measuringObjects struct {
	workspace.Objects
	maxRead *int64
}

func (o measuringObjects) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := o.Objects.Get(ctx, key)
	return &measuringReader{ReadCloser: r, maxRead: o.maxRead}, err
}

// Put measures the heap, like the writers of stages.
func (o measuringObjects) Put(ctx context.Context, key string, data []byte) error {
	*o.maxRead = max(*o.maxRead, liveHeap())
	return o.Objects.Put(ctx, key, data)
}

func (o measuringObjects) Stage(ctx context.Context) (workspace.Stage, error) {
	s, err := o.Objects.Stage(ctx)
	return &measuringStage{Stage: s, maxHeap: o.maxRead}, err
}

type measuringStage struct {
	workspace.Stage
	n       int
	maxHeap *int64
}

func (s *measuringStage) Write(p []byte) (int, error) {
	if s.n += len(p); s.n > 2<<20 {
		s.n = 0
		*s.maxHeap = max(*s.maxHeap, liveHeap())
	}
	return s.Stage.Write(p)
}

func (s *measuringStage) Publish(ctx context.Context, key string) error {
	*s.maxHeap = max(*s.maxHeap, liveHeap())
	return s.Stage.Publish(ctx, key)
}

type measuringReader struct {
	io.ReadCloser
	n       int
	maxRead *int64
}

func (r *measuringReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.n += n; r.n > 2<<20 || err != nil {
		r.n = 0
		*r.maxRead = max(*r.maxRead, liveHeap())
	}
	return n, err
}

// longNames returns the nodes of n empty files with long names, and of one
// file that is not empty.
func longNames(n int) []brig.Node {
	dir := strings.Repeat("d", 200)
	nodes := []brig.Node{{Path: "a", Type: brig.RegularFile, Mode: 0o644, Size: 1}, {Path: dir, Type: brig.Directory, Mode: 0o755}}
	for i := range n {
		nodes = append(nodes, brig.Node{Path: fmt.Sprintf("%s/%0200d", dir, i), Type: brig.RegularFile, Mode: 0o644})
	}
	return nodes
}

// commitNodes commits nodes whose files are empty or have one byte.
func commitNodes(ctx context.Context, s *workspace.Store, tenant string, use brig.WorkspaceUse, nodes []brig.Node) error {
	c, err := s.Begin(ctx, tenant, "sb1", use, 0)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, n := range nodes {
		if err := c.Add(ctx, n, strings.NewReader("x"[:n.Size])); err != nil {
			return err
		}
	}
	_, err = c.Commit(ctx, "ann")
	return err
}

// TestReadsUseOnlyReservedMemory measures the memory of the calls that read a version with a
// large manifest. Reading a file, listing a file and restoring a version need
// only the memory of one line. The other calls need no more memory than they
// have reserved.
func TestReadsUseOnlyReservedMemory(t *testing.T) {
	o, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, maxHeap := t.Context(), int64(0)
	s := workspace.New(measuringObjects{o, &maxHeap}, nil)
	if _, err := s.Create(ctx, "acme", "data"); err != nil {
		t.Fatal(err)
	}
	use := resolveUse(t, s, "acme", "data", 0)
	nodes := longNames(10_000)
	base := liveHeap()
	c, err := s.Begin(ctx, "acme", "sb1", use, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		n.Path = strings.Clone(n.Path)
		if err := c.Add(ctx, n, strings.NewReader("x"[:n.Size])); err != nil {
			t.Fatal(err)
		}
	}
	if held, _ := s.Memory(); held < liveHeap()-base {
		t.Errorf("a commit holds %d bytes and is charged for %d", liveHeap()-base, held)
	}
	if _, err := c.Commit(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if held, _ := s.Memory(); held != 0 {
		t.Errorf("%d bytes are held at the end", held)
	}
	const line = 1 << 20 // with the buffers of readers
	for _, f := range []struct {
		name string
		do   func() error
	}{
		{"read", func() error {
			_, r, err := s.Read(ctx, "acme", "data", 1, "/workspace/a")
			if err == nil {
				r.Close()
			}
			return err
		}},
		{"list one", func() error {
			l, err := s.Files(ctx, "acme", "data", 1, "/workspace/a")
			if err == nil && len(l) != 1 {
				err = fmt.Errorf("%d files", len(l))
			}
			return err
		}},
		{"restore", func() error { _, err := s.Restore(ctx, "acme", "ann", "data", 1, 0); return err }},
		{"usage", func() error { _, err := s.Stored(ctx, "acme"); return err }},
		{"diff", func() error { _, err := s.Diff(ctx, "acme", "data", 0, 1); return err }},
		{"unpack", func() error {
			_, err := unpack(ctx, s, "acme", brig.WorkspaceUse{Name: "data", ID: use.ID, Version: 1})
			return err
		}},
		{"commit", func() error {
			c, err := s.Begin(ctx, "acme", "sb2", brig.WorkspaceUse{Name: "data", ID: use.ID, Version: 1}, 0)
			if err == nil {
				c.Close()
			}
			return err
		}},
	} {
		s.SetMemory(1<<30, 1<<30)
		maxHeap = 0
		base := liveHeap()
		if err := f.do(); err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		_, charged := s.Memory()
		bound := line + charged
		if got := maxHeap - base; got > bound {
			t.Errorf("%s holds %d bytes, want at most %d", f.name, got, bound)
		}
		if decodes := charged > 0; decodes != (f.name == "diff" || f.name == "unpack" || f.name == "commit") || decodes && maxHeap-base < line {
			t.Errorf("%s holds %d bytes and is charged for %d", f.name, maxHeap-base, charged)
		}
	}
}

// TestCommitsUseOnlyReservedMemory measures the memory of commits and diffs of versions whose names
// are long in JSON, or whose entries are short in JSON. These operations need no
// more memory than they have reserved.
func TestCommitsUseOnlyReservedMemory(t *testing.T) {
	const buffers = 4 << 20
	control := func(i int) string {
		return fmt.Sprintf("%s/%d", path.Dir(strings.Repeat(strings.Repeat("\x01", 250)+"/", 16)), i)
	}
	for name, tree := range map[string]struct {
		entries int
		path    func(int) string
	}{
		"control characters": {1500, control},
		"small entries":      {60_000, func(i int) string { return fmt.Sprint(i) }},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := workspace.OpenDir(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			ctx, maxHeap := t.Context(), int64(0)
			s := workspace.New(measuringObjects{o, &maxHeap}, nil)
			if _, err := s.Create(ctx, "acme", "data"); err != nil {
				t.Fatal(err)
			}
			use := resolveUse(t, s, "acme", "data", 0)
			measure := func(what string, do func()) {
				t.Helper()
				s.SetMemory(1<<30, 1<<30)
				maxHeap = 0
				base := liveHeap()
				do()
				if _, charged := s.Memory(); maxHeap-base > charged+buffers {
					t.Errorf("%s holds %d bytes and is charged for %d", what, maxHeap-base, charged)
				}
			}
			for round, box := range []brig.ID{"sb1", "sb2"} { // the second has another base and its own manifest
				measure(fmt.Sprint("commit ", round), func() {
					c, err := s.Begin(ctx, "acme", box, use, 0)
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					add := func(filePath string) {
						if err := c.Add(ctx, brig.Node{Path: filePath, Type: brig.Directory, Mode: 0o755}, nil); err != nil {
							t.Fatal(err)
						}
					}
					add(fmt.Sprint("of ", box))
					above := strings.Split(path.Dir(tree.path(0)), "/")
					for i := range above {
						if above[0] != "." {
							add(strings.Join(above[:i+1], "/"))
						}
					}
					for i := range tree.entries {
						add(tree.path(i))
					}
					if _, err := c.Commit(ctx, "ann"); err != nil {
						t.Fatal(err)
					}
				})
			}
			measure("diff", func() {
				if l, err := s.Diff(ctx, "acme", "data", 1, 2); err != nil || len(l) != 1 {
					t.Errorf("%d changes, %v", len(l), err)
				}
			})
		})
	}
}

// TestManifestMemoryIsShared checks that calls wait for memory, but not for
// memory that another tenant holds. A call that exceeds the limit by itself is
// admitted when no other call holds memory.
func TestManifestMemoryIsShared(t *testing.T) {
	o, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, s := t.Context(), workspace.New(o, nil)
	uses := map[string]brig.WorkspaceUse{}
	for _, tenant := range []string{"acme", "rival"} {
		if _, err := s.Create(ctx, tenant, "data"); err != nil {
			t.Fatal(err)
		}
		if err := commitNodes(ctx, s, tenant, resolveUse(t, s, tenant, "data", 0), longNames(100)); err != nil {
			t.Fatal(err)
		}
		uses[tenant] = resolveUse(t, s, tenant, "data", 0)
	}
	one, err := s.BeginUnpack(ctx, "acme", uses["acme"])
	if err != nil {
		t.Fatal(err)
	}
	each, _ := s.Memory()
	one.Close()
	bound := 2*each + each/2
	s.SetMemory(bound, 2*bound)
	var held []*workspace.Unpacking
	for range 2 {
		u, err := s.BeginUnpack(ctx, "acme", uses["acme"])
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, u)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := s.BeginUnpack(short, "acme", uses["acme"]); err == nil {
		t.Error("a third version is admitted to the memory of two")
	}
	if u, err := s.BeginUnpack(ctx, "rival", uses["rival"]); err != nil {
		t.Errorf("another tenant: %v", err)
	} else {
		u.Close()
	}
	for _, u := range held {
		u.Close()
	}
	var work sync.WaitGroup
	for range 20 {
		work.Go(func() {
			if _, err := unpack(ctx, s, "acme", uses["acme"]); err != nil {
				t.Error(err)
			}
			if _, err := s.Diff(ctx, "acme", "data", 0, 1); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if now, peak := s.Memory(); now != 0 || peak > 2*bound {
		t.Errorf("%d bytes are held at the end, and %d were of %d", now, peak, bound)
	}
	s.SetMemory(each/2, each/2)
	if _, err := unpack(ctx, s, "acme", uses["acme"]); err != nil {
		t.Errorf("larger than the bound: %v", err)
	}
	// If two commits wait for each other, the wait ends with an error.
	workspace.SetMaxMemoryWait(t, 20*time.Millisecond)
	s.SetMemory(4<<20, 4<<20)
	failed := make(chan error, 2)
	ready, begin := make(chan struct{}), make(chan struct{})
	for range 2 {
		go func() {
			c, err := s.Begin(ctx, "acme", "sb1", uses["acme"], 0)
			if err != nil {
				failed <- err
				return
			}
			defer c.Close()
			ready <- struct{}{}
			<-begin
			for _, n := range longNames(3000) {
				if err = c.Add(ctx, n, strings.NewReader("x"[:n.Size])); err != nil {
					break
				}
			}
			failed <- err
		}()
	}
	<-ready
	<-ready
	close(begin)
	a, b := <-failed, <-failed
	if err := errors.Join(a, b); brig.KindOf(err) != brig.Unavailable && brig.KindOf(a) != brig.Unavailable && brig.KindOf(b) != brig.Unavailable {
		t.Errorf("two that need more than there is: %v, %v", a, b)
	}
}

// TestNamesAreLimited checks that the server limits the memory for a guest's
// file names, both inside and outside /workspace.
func TestNamesAreLimited(t *testing.T) {
	o, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, s := t.Context(), workspace.New(o, nil)
	if _, err := s.Create(ctx, "acme", "data"); err != nil {
		t.Fatal(err)
	}
	use := resolveUse(t, s, "acme", "data", 0)
	use.Capture = []string{"/etc"}
	deep := strings.Repeat("d/", 1900)
	for what, add := range map[string]func(*workspace.Capture, brig.Node) error{
		"inside":  func(c *workspace.Capture, n brig.Node) error { return c.Add(ctx, n, nil) },
		"outside": func(c *workspace.Capture, n brig.Node) error { return c.AddOutside(ctx, n, nil) },
	} {
		c, err := s.Begin(ctx, "acme", "sb1", use, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; err == nil && n < 20_000; n++ {
			err = add(c, brig.Node{Path: path.Join(deep, fmt.Sprint(n)), Type: brig.Directory, Mode: 0o755})
		}
		c.Close()
		if e := brig.AsError(err); e == nil || e.Kind != brig.FailedPrecondition || !strings.Contains(e.Message, "names") || n*len(deep) > brig.MaxWorkspaceNames+2*len(deep) {
			t.Errorf("%s: %d nodes, %v", what, n, err)
		}
	}
}
