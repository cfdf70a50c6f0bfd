package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/workspace"
)

// TestFailedCommitsStayWithinQuota repeatedly commits conflicting changes, each
// time with new contents. The leftover contents count against the quota until a
// sweep removes them.
func TestFailedCommitsStayWithinQuota(t *testing.T) {
	runOnBoth(t, func(t *testing.T, a arena) {
		ctx, s := t.Context(), workspace.New(a, nil)
		if _, err := s.Create(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		empty := resolveUse(t, s, "acme", "data", 0)
		if _, err := commit(ctx, s, "acme", "winner", empty, tree{"f": "mine"}); err != nil {
			t.Fatal(err)
		}
		before := storedBytes(t, a)
		const quota, size = 6 << 20, 2 << 20
		for _, file := range []string{"large", "many small ones"} {
			conflicts, refused := 0, 0
			for i := range 8 {
				tr := tree{"f": fmt.Sprint("theirs ", i)}
				if file == "large" {
					tr["f"] += strings.Repeat("x", size)
				} else {
					for n := range 4 {
						tr[fmt.Sprint(n)] = fmt.Sprint(i, n) + strings.Repeat("x", size/4)
					}
				}
				switch _, err := commitWithin(ctx, s, quota, empty, tr); brig.KindOf(err) {
				case brig.FailedPrecondition:
					conflicts++
				case brig.RateLimited:
					refused++
				default:
					t.Fatal(err)
				}
				if got := storedBytes(t, a); got > quota {
					t.Fatalf("%s: after %d commits %d bytes are stored of %d", file, i+1, got, quota)
				}
			}
			if conflicts != 2 || refused != 6 || !s.NeedsSweep("acme") {
				t.Errorf("%s: %d conflicts and %d refused, needs a sweep: %t; want 2, 6 and true", file, conflicts, refused, s.NeedsSweep("acme"))
			}
			if _, err := s.Sweep(ctx, "acme"); err != nil || s.NeedsSweep("acme") {
				t.Fatalf("after a sweep: %v", err)
			}
			if got := storedBytes(t, a); got != before {
				t.Errorf("%s: failed commits keep %d bytes", file, got-before)
			}
		}
		if _, err := commitWithin(ctx, s, quota, resolveUse(t, s, "acme", "data", 0), tree{"f": "mine", "g": strings.Repeat("g", 2*size)}); err != nil {
			t.Error(err)
		}
		if s.NeedsSweep("acme") {
			t.Error("a commit that succeeds needs a sweep")
		}
		wantStored(t, s, a)
	})
}

// failingObjects wraps Objects and fails to write every key for which the
// function of returns true.
type failingObjects struct {
	workspace.Objects
	of func(key string) bool
}

func (o failingObjects) Put(ctx context.Context, key string, data []byte) error {
	if o.of(key) {
		return errors.New("503 Slow Down")
	}
	return o.Objects.Put(ctx, key, data)
}

func (o failingObjects) Create(ctx context.Context, key string, data []byte) error {
	if o.of(key) {
		return errors.New("503 Slow Down")
	}
	return o.Objects.Create(ctx, key, data)
}

// TestEveryFailureNeedsSweep ends captures in every way that leaves objects.
// Each way must request a sweep, with and without a quota, and the sweep must
// remove these objects.
func TestEveryFailureNeedsSweep(t *testing.T) {
	o, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var broken atomic.Value // part of the keys that cannot be written
	broken.Store("")
	ctx, s := t.Context(), workspace.New(failingObjects{o, func(key string) bool {
		part := broken.Load().(string)
		return part != "" && strings.Contains(key, part)
	}}, nil)
	if _, err := s.Create(ctx, "acme", "data"); err != nil {
		t.Fatal(err)
	}
	if _, err := commit(ctx, s, "acme", "sb0", resolveUse(t, s, "acme", "data", 0), tree{"base": "1"}); err != nil {
		t.Fatal(err)
	}
	file := brig.Node{Path: "f", Type: brig.RegularFile, Mode: 0o644, Size: 3}
	add := func(ctx context.Context, c *workspace.Capture, name, content string) error {
		n := file
		n.Path, n.Size = name, int64(len(content))
		return c.Add(ctx, n, strings.NewReader(content))
	}
	for _, f := range []struct {
		name    string
		broken  string // part of the keys that cannot be written
		succeed bool
		do      func(ctx context.Context, c *workspace.Capture) error
	}{
		{"the sandbox dies", "", false, func(ctx context.Context, c *workspace.Capture) error {
			return errors.Join(add(ctx, c, "f", "one"), c.Add(ctx, brig.Node{Path: "g", Type: brig.RegularFile}, brokenBody{}))
		}},
		{"the sandbox dies in a large file", "", false, func(ctx context.Context, c *workspace.Capture) error {
			return errors.Join(add(ctx, c, "f", strings.Repeat("l", 3<<20)), c.Add(ctx, brig.Node{Path: "g", Type: brig.RegularFile}, brokenBody{}))
		}},
		{"the caller cancels", "", false, func(ctx context.Context, c *workspace.Capture) error {
			if err := add(ctx, c, "f", "two"); err != nil {
				return err
			}
			return context.Canceled
		}},
		{"the version is not created", "/versions/", false, func(ctx context.Context, c *workspace.Capture) error {
			if err := add(ctx, c, "f", "three"); err != nil {
				return err
			}
			_, err := c.Commit(ctx, "ann")
			return err
		}},
		{"a content is not written", "/blobs/", false, func(ctx context.Context, c *workspace.Capture) error {
			if err := add(ctx, c, "f", "four"); err != nil {
				return err
			}
			_, err := c.Commit(ctx, "ann")
			return err
		}},
		{"a captured file is larger than declared", "", true, func(ctx context.Context, c *workspace.Capture) error {
			c.UseOutside(brig.MaxWorkspaceCapturedSize - 3)
			n := file
			err := c.AddOutside(ctx, n, strings.NewReader("too large"))
			if err != nil {
				return err
			}
			_, err = c.Commit(ctx, "ann")
			return err
		}},
	} {
		for _, quota := range []int64{0, brig.GiB} {
			before := listKeys(t, o, "t/acme/blobs/")
			use := resolveUse(t, s, "acme", "data", 0)
			use.Capture = []string{"/f"}
			c, err := s.Begin(ctx, "acme", "sb1", use, quota)
			if err != nil {
				t.Fatal(err)
			}
			err = add(ctx, c, "base", "1")
			broken.Store(f.broken)
			err = errors.Join(err, f.do(ctx, c))
			c.Close()
			broken.Store("")
			if (err == nil) != f.succeed || !s.NeedsSweep("acme") {
				t.Errorf("%s, quota %d: %v; needs a sweep: %t", f.name, quota, err, s.NeedsSweep("acme"))
			}
			if _, err := s.Sweep(ctx, "acme"); err != nil || s.NeedsSweep("acme") {
				t.Errorf("%s, quota %d: the sweep: %v", f.name, quota, err)
			}
			if after := listKeys(t, o, "t/acme/blobs/"); !f.succeed && !slices.Equal(after, before) {
				t.Errorf("%s, quota %d: it leaves %v of %v", f.name, quota, after, before)
			}
		}
	}
}

// TestTenantsOfAllObjectsAreListed checks that the tenants of all objects are found, even
// those that no longer exist and those whose names are not keys.
func TestTenantsOfAllObjectsAreListed(t *testing.T) {
	runOnBoth(t, func(t *testing.T, a arena) {
		s := workspace.New(a, nil)
		want := []string{"Big Corp", "acme"}
		for _, tenant := range want {
			if _, err := s.Create(t.Context(), tenant, "data"); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Put(t.Context(), "t/=zz/blobs/x", nil); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Tenants(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	})
}

// TestSweepRemovesAbandonedStagedFiles checks that a sweep removes exactly the staged
// files of processes that have ended.
func TestSweepRemovesAbandonedStagedFiles(t *testing.T) {
	workspace.SetLockDelay(t, 0)
	dir := t.TempDir()
	o, err := workspace.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	live, err := o.Stage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer live.Abort()
	if _, err := live.Write([]byte("live")); err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(dir, "staging", "dead")
	if err := os.WriteFile(dead, []byte("dead"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := workspace.New(o, nil).Sweep(t.Context(), "acme"); n != 1 || err != nil {
		t.Errorf("%d removed, %v", n, err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a process that has ended: %v", err)
	}
	if err := live.Publish(t.Context(), "t/acme/blobs/x"); err != nil || readObject(t, o, "t/acme/blobs/x") != "live" {
		t.Errorf("the file that is being written: %v", err)
	}
}

// TestIncompleteUploadsAreRemoved checks that a sweep removes the partial
// uploads that a killed server has left in a bucket, but only those of the
// sweep's tenant.
func TestIncompleteUploadsAreRemoved(t *testing.T) {
	g := startGateway(t)
	o, err := workspace.OpenS3(t.Context(), g.o)
	if err != nil {
		t.Fatal(err)
	}
	client, err := minio.NewCore(g.o.Endpoint, &minio.Options{Creds: credentials.NewStaticV4(g.o.AccessKey, g.o.SecretKey, ""), Region: g.o.Region})
	if err != nil {
		t.Fatal(err)
	}
	part := make([]byte, 5<<20)
	for _, tenant := range []string{"acme", "acmeother"} {
		key := g.o.Prefix + "/t/" + tenant + "/blobs/aa/large"
		id, err := client.NewMultipartUpload(t.Context(), g.o.Bucket, key, minio.PutObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.PutObjectPart(t.Context(), g.o.Bucket, key, id, 1, bytes.NewReader(part), int64(len(part)), minio.PutObjectPartOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := workspace.New(o, nil).Sweep(t.Context(), "acme"); n != 1 || err != nil {
		t.Errorf("%d removed, %v", n, err)
	}
	var leftovers []string
	for u := range client.ListIncompleteUploads(t.Context(), g.o.Bucket, "", true) {
		if u.Err != nil {
			t.Fatal(u.Err)
		}
		leftovers = append(leftovers, u.Key)
	}
	if len(leftovers) != 1 || !strings.Contains(leftovers[0], "acmeother") {
		t.Errorf("the uploads %q are left", leftovers)
	}
}
