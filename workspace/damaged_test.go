package workspace_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/workspace"
)

// TestDamagedRecordsDoNotAffectOthers damages the records of one workspace, one after
// the other. All other workspaces remain usable, including for commits with a
// quota, and the damaged workspace can be removed.
func TestDamagedRecordsDoNotAffectOthers(t *testing.T) {
	o, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, s := t.Context(), workspace.New(o, nil)
	for _, name := range []string{"bad", "good"} {
		if _, err := s.Create(ctx, "acme", name); err != nil {
			t.Fatal(err)
		}
		for _, content := range []string{"one", "two"} {
			if _, err := commit(ctx, s, "acme", "sb1", resolveUse(t, s, "acme", name, 0), tree{"f": name + content}); err != nil {
				t.Fatal(err)
			}
		}
	}
	bad := resolveUse(t, s, "acme", "bad", 0)
	for i, key := range []string{"t/acme/versions/" + bad.ID + "/00000001", "t/acme/versions/" + bad.ID + "/00000002", "t/acme/names/bad"} {
		for _, content := range []string{"", "{", `{"Number": 99}`} {
			if err := o.Put(ctx, key, []byte(content)); err != nil {
				t.Fatal(err)
			}
			s := workspace.New(o, nil) // a new store, without cached sums
			list, err := s.List(ctx, "acme")
			if err != nil || len(list) != 2 || list[1].Head == nil || (list[0].Head == nil) != (i > 0) || (list[0].ID == "") != (i == 2) {
				t.Fatalf("%s as %q: the list is %+v, %v", key, content, list, err)
			}
			if i == 0 {
				if vs, err := s.Versions(ctx, "acme", "bad"); err != nil || len(vs) != 1 || vs[0].Number != 2 {
					t.Errorf("%s as %q: the versions are %+v, %v", key, content, vs, err)
				}
				if _, _, err := s.Read(ctx, "acme", "bad", 1, "/workspace/f"); brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "damaged") {
					t.Errorf("%s as %q: reading it: %v", key, content, err)
				}
			}
			if n, err := s.Stored(ctx, "acme"); err != nil || n == 0 {
				t.Errorf("%s as %q: %d bytes are counted, %v", key, content, n, err)
			}
			if _, err := commitWithin(ctx, s, brig.GiB, resolveUse(t, s, "acme", "good", 0), tree{"f": key + content}); err != nil {
				t.Errorf("%s as %q: a commit to another: %v", key, content, err)
			}
		}
	}
	// A sweep that cannot read all versions does not remove any contents.
	before := len(listKeys(t, o, "t/acme/blobs/"))
	if _, err := s.Sweep(ctx, "acme"); err == nil || len(listKeys(t, o, "t/acme/blobs/")) != before {
		t.Errorf("a sweep that cannot read all: %v", err)
	}
	if err := s.Remove(ctx, "acme", "bad"); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(ctx, "acme"); err != nil || n == 0 || len(listKeys(t, o, "t/acme/versions/"+bad.ID+"/")) != 0 {
		t.Errorf("%d swept, %v", n, err)
	}
	if got, err := unpack(ctx, s, "acme", resolveUse(t, s, "acme", "good", 1)); err != nil || !isEqualTree(got, tree{"f": "goodone"}) {
		t.Errorf("the other one is %v, %v", got, err)
	}
}

// slowObjects wraps Objects and calls on before it reads a key.
type slowObjects struct {
	workspace.Objects
	on func(key string)
}

func (o slowObjects) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	o.on(key)
	return o.Objects.Get(ctx, key)
}

// TestReadsExcludeSweeps removes a workspace and sweeps it while a call reads it.
// The sweep waits, so the version is not reported as damaged.
func TestReadsExcludeSweeps(t *testing.T) {
	for name, read := range map[string]func(ctx context.Context, s *workspace.Store) error{
		"read": func(ctx context.Context, s *workspace.Store) error {
			_, r, err := s.Read(ctx, "acme", "data", 1, "/workspace/f")
			if err == nil {
				r.Close()
			}
			return err
		},
		"files": func(ctx context.Context, s *workspace.Store) error {
			_, err := s.Files(ctx, "acme", "data", 1, "")
			return err
		},
		"diff": func(ctx context.Context, s *workspace.Store) error {
			_, err := s.Diff(ctx, "acme", "data", 0, 1)
			return err
		},
		"versions": func(ctx context.Context, s *workspace.Store) error {
			_, err := s.Versions(ctx, "acme", "data")
			return err
		},
		"list":  func(ctx context.Context, s *workspace.Store) error { _, err := s.List(ctx, "acme"); return err },
		"usage": func(ctx context.Context, s *workspace.Store) error { _, err := s.Stored(ctx, "acme"); return err },
	} {
		d, err := workspace.OpenDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		ctx, s := t.Context(), workspace.New(d, nil)
		if _, err := s.Create(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		if _, err := commit(ctx, s, "acme", "sb1", resolveUse(t, s, "acme", "data", 0), tree{"f": "content"}); err != nil {
			t.Fatal(err)
		}
		swept := make(chan error, 1)
		began := false
		slow := workspace.New(slowObjects{d, func(key string) {
			if began || !strings.Contains(key, "/versions/") {
				return
			}
			began = true
			go func() {
				err := s.Remove(ctx, "acme", "data")
				if err == nil {
					_, err = s.Sweep(ctx, "acme")
				}
				swept <- err
			}()
			for deadline := time.Now().Add(10 * time.Second); d.CountWaiting("t/acme") == 0 && len(swept) == 0 && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
		}}, nil)
		if err := read(ctx, slow); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := <-swept; err != nil || len(listKeys(t, d, "t/acme/")) != 0 {
			t.Errorf("%s: the sweep: %v", name, err)
		}
	}
}
