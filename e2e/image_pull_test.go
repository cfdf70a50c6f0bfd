package e2e

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// TestPulledImageRuns verifies that the programs of an image that was pulled from a registry run
// in a sandbox, with the environment that the image sets.
//
//suite:part core
func TestPulledImageRuns(t *testing.T) {
	needRoot(t)
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs busybox-static")
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	ref := strings.TrimPrefix(srv.URL, "http://") + "/team/box:1"
	pushImage(t, ref, v1.Config{Env: []string{"GREETING=from the image", "LD_PRELOAD=/nothing", "NAME=image"}, User: "app", WorkingDir: "/srv"},
		layer(t, tar.Header{Name: "usr/bin/busybox", Mode: 0o755}, string(program), tar.Header{Name: "bin", Linkname: "usr/bin"}, "",
			tar.Header{Name: "gone", Mode: 0o644}, "x", tar.Header{Name: "srv/x", Mode: 0o644}, ""),
		// The upper layer writes through a symbolic link in the lower layer.
		layer(t, tar.Header{Name: "bin/sh", Linkname: "busybox"}, "", tar.Header{Name: "bin/echo", Linkname: "busybox"}, "",
			tar.Header{Name: ".wh.gone", Mode: 0o644}, "", tar.Header{Name: "etc/motd", Mode: 0o644}, "hello\n"))

	e, ctx := engineWith(t, engine.Options{})
	if _, err := e.Create(ctx, brig.Spec{Image: ref}); brig.KindOf(err) != brig.InvalidArgument || !strings.Contains(brig.AsError(err).Hint, "brig image pull "+ref) {
		t.Errorf("before it was pulled: %v", err)
	}
	img, err := e.PullImage(ctx, brig.ImagePull{Ref: ref}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if img.Config.WorkingDir != "/srv" || !slices.ContainsFunc(img.Notes, func(n string) bool { return strings.Contains(n, "1000") }) {
		t.Errorf("%+v", img)
	}
	box, err := e.Create(ctx, brig.Spec{Name: "pulled", Image: ref, Env: map[string]string{"NAME": "caller"}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if box.Digest != img.Digest {
		t.Errorf("made of %s", box.Digest)
	}
	r, err := e.Exec(ctx, "pulled", brig.Command{Shell: `echo "$GREETING, $NAME, ${LD_PRELOAD-none}"; cat /etc/motd; ls /gone; busybox id -u; pwd`}, brig.IO{})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(r.Stdout.Head); got != "from the image, caller, none\nhello\n1000\n/srv\n" {
		t.Errorf("%q, %q", got, r.Stderr.Head)
	}
	if err := e.RemoveImage(ctx, ref); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("removed while it is used: %v", err)
	}
	if err := e.Remove(ctx, "pulled"); err != nil {
		t.Fatal(err)
	}
	if err := e.RemoveImage(ctx, ref); err != nil {
		t.Error(err)
	}
}

// layer returns an image layer with the given entries, which are alternating headers and
// contents.
func layer(t *testing.T, entries ...any) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(entries); i += 2 {
		h, content := entries[i].(tar.Header), entries[i+1].(string)
		if h.Typeflag, h.Size = tar.TypeReg, int64(len(content)); h.Linkname != "" {
			h.Typeflag = tar.TypeSymlink
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func pushImage(t *testing.T, ref string, c v1.Config, layers ...v1.Layer) {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Config: c, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.AppendLayers(img, layers...); err != nil {
		t.Fatal(err)
	}
	to, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, img); err != nil {
		t.Fatal(err)
	}
}
