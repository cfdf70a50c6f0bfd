package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// TestVolumePaths verifies that a volume can be mounted at each path that CheckVolumeMounts allows, also
// over the sandbox's own mounts, and that volumes can be mounted within each other.
//
//suite:part core
func TestVolumePaths(t *testing.T) {
	e, ctx := newSharedVolume(t, 64*brig.MiB)
	if _, err := e.CreateVolume(ctx, "second", 64*brig.MiB); err != nil {
		t.Fatal(err)
	}
	for what, mounts := range map[string][]brig.VolumeMount{
		"missing directories": {{Name: "shared", Path: "/a/b/c"}},
		"temporary files":     {{Name: "shared", Path: "/tmp"}},
		"below /tmp":          {{Name: "shared", Path: "/tmp/x"}},
		"home":                {{Name: "shared", Path: "/home/user"}},
		"workspace":           {{Name: "shared", Path: "/workspace"}},
		"outer first":         {{Name: "shared", Path: "/v"}, {Name: "second", Path: "/v/inner"}},
		"inner first":         {{Name: "second", Path: "/v/inner"}, {Name: "shared", Path: "/v"}},
		"read-only outer":     {{Name: "shared", Path: "/v", ReadOnly: true}, {Name: "second", Path: "/v/none"}},
		"twice":               {{Name: "shared", Path: "/v"}, {Name: "shared", Path: "/w", ReadOnly: true}},
	} {
		t.Run(what, func(t *testing.T) {
			if err := e.VolumeFiles("shared").Remove(ctx, "/mark"); err != nil && brig.KindOf(err) != brig.NotFound {
				t.Fatal(err)
			}
			box, err := e.Create(ctx, brig.Spec{Volumes: mounts, TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := e.Remove(ctx, box.Spec.Name); err != nil {
					t.Error(err)
				}
			}()
			for _, m := range mounts {
				out := tryShell(t, ctx, e, box.Spec.Name, "echo "+m.Name+" > "+m.Path+"/mark && cat "+m.Path+"/mark")
				if m.ReadOnly != (out != m.Name) {
					t.Errorf("%+v: %q", m, out)
				}
				_, r, err := e.VolumeFiles(m.Name).Read(ctx, "/mark")
				if err == nil {
					r.Close()
				}
				if !m.ReadOnly && err != nil {
					t.Errorf("%+v has no file: %v", m, err)
				}
			}
		})
	}
}

// TestVolumeOutlivesPauses verifies that a sandbox with a volume can be paused and resumed, with and
// without memory, also when other sandboxes changed, moved or removed its open files meanwhile.
//
//suite:part crash
func TestVolumeOutlivesPauses(t *testing.T) {
	e, ctx := newSharedVolume(t, 64*brig.MiB)
	volumeBox(t, ctx, e, "other", nil)
	for what, c := range map[string]struct {
		meanwhile string
		repair    string // makes the sandbox resumable again; empty if it is
		want      string
	}{
		"changed":   {"open('open','a').write(' more')", "", "kept more"},
		"removed":   {"os.remove('open')", "open('open','w').write('created')", "created"},
		"replaced":  {"os.remove('open'); open('open','w').write('another')", "", "another"},
		"directory": {"os.remove('open'); os.mkdir('open')", "os.rmdir('open'); open('open','w').write('created')", "created"},
		"current":   {"os.rmdir('dir')", "os.mkdir('dir')", "kept"},
	} {
		if !testenv.IsFull() && what != "removed" {
			continue
		}
		t.Run(what, func(t *testing.T) {
			volumeBox(t, ctx, e, what, func(s *brig.Spec) { s.Pausable = true })
			x, err := e.CreateContext(ctx, what, brig.ContextSpec{})
			if err != nil {
				t.Fatal(err)
			}
			inVolume(t, ctx, e, "other", "os.system('rm -rf open dir'); os.mkdir('dir')")
			runCell(t, ctx, e, what, x.ID, "import os\nos.chdir('/volume/dir')\nf = open('/volume/open', 'w+'); f.write('kept'); f.flush()\nx = 41")
			if _, err := e.Pause(ctx, what, brig.PauseOptions{}); err != nil {
				t.Fatal(err)
			}
			inVolume(t, ctx, e, "other", c.meanwhile)
			if c.repair != "" {
				if _, err := e.Resume(ctx, what); brig.KindOf(err) != brig.FailedPrecondition {
					t.Errorf("the resume without the file: %v", err)
				}
				if s, err := e.Get(ctx, what); err != nil || s.State != brig.Paused {
					t.Fatalf("after the failed resume: %+v, %v", s, err)
				}
				inVolume(t, ctx, e, "other", c.repair)
			}
			if out := runCell(t, ctx, e, what, x.ID, "f.seek(0)\nprint(x+1, f.read(), os.getcwd())"); out != "42 "+c.want+" /volume/dir" {
				t.Errorf("after the resume it printed %q", out)
			}
			if err := e.Remove(ctx, what); err != nil {
				t.Error(err)
			}
		})
	}
}

// tryShell runs a shell script that may fail, and returns its output.
func tryShell(t *testing.T, ctx context.Context, svc brig.Service, name, script string) string {
	t.Helper()
	var out strings.Builder
	if _, err := svc.Exec(ctx, name, brig.Command{Shell: script, Timeout: time.Minute}, brig.IO{Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}
