package workspace_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/workspace"
)

// gateway is a real S3 server (versitygw) on loopback, with one bucket.
type gateway struct {
	dir string // the server's storage directory
	o   workspace.S3Options
}

// s3Server returns the path of the S3 server. `.ci/setup` installs it.
func s3Server() string {
	if p := os.Getenv("BRIG_S3_SERVER"); p != "" {
		return p
	}
	p, err := exec.LookPath("versitygw")
	if err != nil {
		return "/var/cache/brig-test/versitygw"
	}
	return p
}

// startGateway starts an S3 server. It skips the test if the server is not
// installed.
func startGateway(t *testing.T) *gateway {
	t.Helper()
	if _, err := os.Stat(s3Server()); err != nil {
		t.Skip("there is no S3 server here; .ci/setup makes one, or set BRIG_S3_SERVER")
	}
	addr := fmt.Sprintf("127.0.0.1:%d", testenv.Port(t))
	g := &gateway{dir: t.TempDir()}
	g.o = workspace.S3Options{Endpoint: addr, Insecure: true, Region: "us-east-1", Bucket: "brig", Prefix: "server-1", AccessKey: "operator", SecretKey: rand.Text()}
	cmd := exec.Command(s3Server(), "--port", addr, "--access", g.o.AccessKey, "--secret", g.o.SecretKey, "--region", g.o.Region, "posix", g.dir)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := minio.New(addr, &minio.Options{Creds: credentials.NewStaticV4(g.o.AccessKey, g.o.SecretKey, ""), Region: g.o.Region})
		if err == nil {
			err = c.MakeBucket(t.Context(), g.o.Bucket, minio.MakeBucketOptions{})
		}
		if err == nil {
			return g
		}
		if time.Now().After(deadline) {
			t.Fatalf("the S3 server does not answer: %v: %s", err, output.String())
		}
	}
}

// arena is an implementation of Objects together with the directory of its
// files, so that a test can modify the files.
type arena struct {
	workspace.Objects
	reopen func() workspace.Objects // reopens the same storage
	files  string                   // path prefix of the files that store objects
}

// runOnBoth runs a test with each implementation of Objects.
func runOnBoth(t *testing.T, f func(t *testing.T, a arena)) {
	t.Run("local", func(t *testing.T) {
		dir := t.TempDir()
		openObjects := func() workspace.Objects {
			d, err := workspace.OpenDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		f(t, arena{openObjects(), openObjects, filepath.Join(dir, "objects")})
	})
	t.Run("s3", func(t *testing.T) {
		g := startGateway(t)
		openObjects := func() workspace.Objects {
			s, err := workspace.OpenS3(t.Context(), g.o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		f(t, arena{openObjects(), openObjects, filepath.Join(g.dir, g.o.Bucket, g.o.Prefix)})
	})
}

// listKeys lists the objects below a prefix.
func listKeys(t *testing.T, o workspace.Objects, prefix string) []string {
	t.Helper()
	out := []string{}
	if err := o.List(t.Context(), prefix, func(key string) error { out = append(out, key); return nil }); err != nil {
		t.Fatal(err)
	}
	sort.Strings(out)
	return out
}

// tree maps the paths of a simulated sandbox to their contents. The path of a
// directory ends in a slash, and a link's content begins with "-> ".
type tree map[string]string

func (tr tree) nodes() (out []brig.Node) {
	for p, content := range tr {
		n := brig.Node{Path: strings.TrimSuffix(p, "/"), Type: brig.RegularFile, Mode: 0o644, Size: int64(len(content)), Modified: time.Unix(1e9, 0)}
		if strings.HasSuffix(p, "/") {
			n.Type, n.Mode, n.Size = brig.Directory, 0o755, 0
		} else if to, link := strings.CutPrefix(content, "-> "); link {
			n.Type, n.Mode, n.Size, n.Target = brig.Symlink, 0o777, 0, to
		}
		out = append(out, n)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out
}

// commit commits a tree as a sandbox would.
func commit(ctx context.Context, s *workspace.Store, tenant string, box brig.ID, use brig.WorkspaceUse, tr tree, more ...brig.Node) (*brig.WorkspaceCommit, error) {
	c, err := s.Begin(ctx, tenant, box, use, 0)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, n := range append(tr.nodes(), more...) {
		if err := c.Add(ctx, n, strings.NewReader(tr[n.Path])); err != nil {
			return nil, err
		}
	}
	return c.Commit(ctx, "ann")
}

// unpack reads all files of a version.
func unpack(ctx context.Context, s *workspace.Store, tenant string, use brig.WorkspaceUse) (tree, error) {
	out := tree{}
	u, err := s.BeginUnpack(ctx, tenant, use)
	if err != nil {
		return nil, err
	}
	defer u.Close()
	err = u.Unpack(ctx, func(n brig.Node, r io.Reader) error {
		switch n.Type {
		case brig.Directory:
			out[n.Path+"/"] = ""
		case brig.Symlink:
			out[n.Path] = "-> " + n.Target
		default:
			b, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			if int64(len(b)) != n.Size {
				return errors.New("another size")
			}
			out[n.Path] = string(b)
		}
		return nil
	})
	return out, err
}

// resolveUse returns a use of a workspace at a version. Version 0 is the newest.
func resolveUse(t *testing.T, s *workspace.Store, tenant, name string, version int) brig.WorkspaceUse {
	t.Helper()
	id, n, err := s.Find(t.Context(), tenant, name, version)
	if err != nil {
		t.Fatal(err)
	}
	return brig.WorkspaceUse{Name: name, ID: id, Version: n}
}

func isEqualTree(a, b tree) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
