package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// TestWorkspaceRandomKills kills the server, or a sandbox, at random moments during a commit to a
// directory or a bucket. The workspace must contain the complete old version or the complete new
// version. Acknowledged versions must exist, and the next commit must succeed.
//
//suite:part workspaces full
func TestWorkspaceRandomKills(t *testing.T) {
	needRoot(t)
	rounds := 8
	if testenv.IsFull() {
		rounds = 60
	}
	for _, store := range []string{"local", "s3"} {
		t.Run(store, func(t *testing.T) {
			text := "pool: {size: -1}\n"
			lab := t.TempDir()
			if store == "s3" {
				addr, secret, _ := startS3(t, t.TempDir())
				credentials := filepath.Join(lab, "credentials")
				if err := os.WriteFile(credentials, []byte("operator\n"+secret+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				text += fmt.Sprintf("workspaces: {store: s3, s3: {endpoint: %q, insecure: true, bucket: brig, region: us-east-1, credentials: %q}}\n", addr, credentials)
			}
			config := filepath.Join(lab, "brig.yaml")
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			k := &workspaceKiller{t: t, dir: dataDir(t), config: config}
			k.start()
			if _, err := k.b.svc.CreateWorkspace(k.b.ctx, "data"); err != nil {
				t.Fatal(err)
			}
			k.box()
			k.write()
			began := time.Now()
			k.commit()
			k.span = time.Since(began)
			for i := range rounds {
				k.round(i%3 == 2)
			}
			t.Logf("%d kills in commits of %v: %d versions were old, %d new", rounds, k.span.Round(time.Millisecond), k.old, k.fresh)
			if k.old == 0 {
				t.Error("no kill came before the end of a commit")
			}
		})
	}
}

// workspaceKiller holds the state of one sandbox with a workspace. Every file of a version
// contains the version's generation number.
type workspaceKiller struct {
	t           *testing.T
	dir, config string
	srv         *server
	b           sandboxRunner
	span        time.Duration // duration of an undisturbed commit
	id          brig.ID       // ID of the sandbox
	boxes       int
	generation  int // the generation in the sandbox
	kept        int // the last acknowledged generation in the workspace
	old, fresh  int
}

func (k *workspaceKiller) start() {
	k.srv = startServer(k.t, k.dir, "--config", k.config)
	k.b = sandboxRunner{k.t, k.srv.client(), k.t.Context()}
}

func (k *workspaceKiller) name() string { return "box-" + strconv.Itoa(k.boxes) }

// box creates a sandbox.
func (k *workspaceKiller) box() {
	k.boxes++
	k.id = k.b.create(brig.Spec{Name: k.name(), TTL: time.Hour, Workspace: brig.WorkspaceUse{Name: "data"}}).ID
}

// write writes the files of the next generation.
func (k *workspaceKiller) write() {
	k.generation++
	k.b.sh(k.name(), fmt.Sprintf(`for i in $(seq 40); do echo %d > small$i; done; for i in 1 2 3; do (echo %d $i; yes %d | head -c 3000000) > large$i; done`,
		k.generation, k.generation, k.generation))
}

func (k *workspaceKiller) commit() {
	k.t.Helper()
	if c, err := k.b.svc.CommitWorkspace(k.b.ctx, k.name()); err != nil || c.Version.Files != 43 {
		k.t.Fatalf("%+v, %v", c, err)
	}
	k.kept = k.generation
}

// round writes a generation, kills the server or the sandbox during the commit, and verifies the
// workspace.
func (k *workspaceKiller) round(sandbox bool) {
	k.t.Helper()
	k.write()
	done := make(chan error, 1)
	svc := k.b.svc
	go func() {
		_, err := svc.CommitWorkspace(context.WithoutCancel(k.b.ctx), k.name())
		done <- err
	}()
	time.Sleep(time.Duration(rand.Int64N(int64(k.span) * 5 / 4)))
	if sandbox {
		k.killSandbox()
	} else {
		k.srv.kill()
	}
	err := <-done
	if !sandbox {
		k.start()
	}
	got := k.readGeneration()
	switch {
	case got == k.generation:
		k.fresh++
	case err != nil && got == k.kept:
		k.old++
	default:
		k.t.Errorf("the commit of generation %d answered %v, and the workspace has %d; it had %d", k.generation, err, got, k.kept)
	}
	k.kept = got
	if sandbox {
		eventually(k.t, "the sandbox has ended", func() bool {
			box, err := k.b.svc.Get(k.b.ctx, k.name())
			return err == nil && box.State == brig.Ended
		})
		k.box()
		k.write()
	}
	k.commit()
	if got := k.readGeneration(); got != k.generation {
		k.t.Errorf("after a commit that nobody disturbed it has generation %d, want %d", got, k.generation)
	}
}

// readGeneration reads every file of the newest version, which verifies the digests, and returns
// their common generation number.
func (k *workspaceKiller) readGeneration() int {
	k.t.Helper()
	list, err := k.b.svc.WorkspaceFiles(k.b.ctx, "data", 0, "")
	if err != nil || len(list) != 43 {
		k.t.Fatalf("the version has %d files, %v", len(list), err)
	}
	generation := ""
	for _, f := range list {
		size, r, err := k.b.svc.ReadWorkspaceFile(k.b.ctx, "data", 0, f.Path)
		if err != nil {
			k.t.Fatalf("%s: %v", f.Path, err)
		}
		b, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil || int64(len(b)) != size || size != f.Size {
			k.t.Fatalf("%s: %d bytes of %d, %v", f.Path, len(b), size, err)
		}
		says := strings.Fields(string(b[:min(len(b), 20)]))[0]
		if large := strings.HasPrefix(f.Path, "/workspace/large"); large && !bytes.Contains(b[100:], []byte("\n"+says+"\n")) || large != (size > 100) {
			k.t.Fatalf("%s has %d bytes, beginning with %.20q", f.Path, size, b)
		}
		if generation == "" {
			generation = says
		}
		if says != generation {
			k.t.Fatalf("it is torn: %s is of generation %s, others of %s", f.Path, says, generation)
		}
	}
	n, err := strconv.Atoi(generation)
	if err != nil {
		k.t.Fatal(err)
	}
	return n
}

// killSandbox kills all processes of the sandbox on the host.
func (k *workspaceKiller) killSandbox() {
	k.t.Helper()
	killed := 0
	lookProcesses(k.t, func(file string, data []byte) {
		if !strings.HasSuffix(file, "/cmdline") || !bytes.Contains(data, []byte(filepath.Join(k.dir, "sandboxes", string(k.id)))) {
			return
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	})
	if killed == 0 {
		k.t.Error("the sandbox has no process")
	}
}
