package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/google/go-containerregistry/pkg/name"
	fakeregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// hub is a registry on the loopback address, with an optional front handler of
// a test.
type hub struct {
	t            testing.TB
	inner        http.Handler
	host         string
	blobRequests atomic.Int64 // number of blob requests

	mu        sync.Mutex
	intercept func(w http.ResponseWriter, r *http.Request) bool // true: the front answered
}

func newHub(t testing.TB) *hub {
	h := &hub{t: t, inner: fakeregistry.New(fakeregistry.Logger(log.New(io.Discard, "", 0)))}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	h.host = strings.TrimPrefix(srv.URL, "http://")
	return h
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
		h.blobRequests.Add(1)
	}
	h.mu.Lock()
	front := h.intercept
	h.mu.Unlock()
	if front == nil || !front(w, r) {
		h.inner.ServeHTTP(w, r)
	}
}

// setIntercept installs a handler in front of the registry.
func (h *hub) setIntercept(f func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.intercept = f
}

// push pushes an image without the front handler and returns its reference.
func (h *hub) push(img v1.Image, what string) string {
	h.t.Helper()
	h.mu.Lock()
	front := h.intercept
	h.intercept = nil
	h.mu.Unlock()
	defer h.setIntercept(front)
	ref, err := name.ParseReference(h.host + "/" + what)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		h.t.Fatal(err)
	}
	return h.host + "/" + what
}

// imageOf makes an image of layers. Each is the bytes of a tar archive,
// compressed or not.
func imageOf(t testing.TB, layers ...[]byte) v1.Image {
	t.Helper()
	return imageWithConfig(t, v1.Config{}, layers...)
}

func imageWithConfig(t testing.TB, c v1.Config, layers ...[]byte) v1.Image {
	t.Helper()
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	f, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	f = f.DeepCopy()
	f.OS, f.Architecture, f.Config = "linux", thisPlatform().Architecture, c
	if img, err = mutate.ConfigFile(img, f); err != nil {
		t.Fatal(err)
	}
	var all []mutate.Addendum
	for _, b := range layers {
		all = append(all, mutate.Addendum{Layer: layerOf(t, b)})
	}
	if img, err = mutate.Append(img, all...); err != nil {
		t.Fatal(err)
	}
	return img
}

// layerOf returns b unchanged as a layer, with the digest of its content.
func layerOf(t testing.TB, b []byte) v1.Layer {
	t.Helper()
	a, err := openArchive(t.Context(), bytes.NewReader(b), &Options{MaxSize: 1 << 40, MaxRatio: 1 << 40})
	if err != nil {
		return static.NewLayer(b, types.OCILayer)
	}
	_, _ = io.Copy(io.Discard, a)
	diff, err := v1.NewHash(a.digest())
	if err != nil {
		t.Fatal(err)
	}
	return fixedLayer{static.NewLayer(b, types.OCILayer), diff}
}

type fixedLayer struct {
	v1.Layer
	diff v1.Hash
}

func (l fixedLayer) DiffID() (v1.Hash, error) { return l.diff, nil }

// tarOf makes an archive.
func tarOf(t testing.TB, f func(m *maker)) []byte {
	m := newMaker(t)
	f(m)
	return m.bytes()
}

func (a *arena) pull(t testing.TB, ref string) (*brig.Image, error) {
	return a.store.Pull(t.Context(), brig.ImagePull{Ref: ref}, nil)
}

// listFiles lists the files of an image, as "name=content" or "name->target".
func (a *arena) listFiles(t testing.TB, digest string) []string {
	t.Helper()
	r, err := a.store.Root(digest)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	err = filepath.WalkDir(r.Dir, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(r.Dir, p)
		switch {
		case err != nil:
			return err
		case slices.Contains([]string{"proc", "dev", "sys", "tmp", "run", "workspace", "home", "home/user", "etc/passwd", "etc/group"}, rel):
		case d.Type() == fs.ModeSymlink:
			target, _ := os.Readlink(p)
			out = append(out, rel+"->"+target)
		case d.Type().IsRegular():
			b, _ := os.ReadFile(p)
			out = append(out, rel+"="+string(b))
		case rel != "." && rel != "etc":
			out = append(out, rel+"/")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (a *arena) checkFiles(t testing.TB, img *brig.Image, want ...string) {
	t.Helper()
	if got := a.listFiles(t, img.Digest); !slices.Equal(got, want) {
		t.Errorf("files %q\n want %q", got, want)
	}
	if err := a.checkUnchanged(); err != nil {
		t.Error(err)
	}
}

// checkRefused checks the parts of an error that callers see.
func (a *arena) checkRefused(t testing.TB, err error, kind brig.Kind, field, says string) {
	t.Helper()
	e := brig.AsError(err)
	if e == nil || e.Kind != kind || e.Field != field || !strings.Contains(e.Message+" "+e.Hint, says) {
		t.Errorf("%s %q: %v (hint %q), want %s %q: %q", brig.KindOf(err), e.Field, err, e.Hint, kind, field, says)
	}
	if e != nil && (strings.ContainsAny(e.Message+e.Hint, "\x00\x1b\n") || len(e.Message) > 1200 || strings.Contains(e.Message+e.Hint, a.store.dir)) {
		t.Errorf("unfit to be shown: %q %q", e.Message, e.Hint)
	}
	if err := a.checkUnchanged(); err != nil {
		t.Error(err)
	}
}

func TestPullStoresImage(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	img := imageWithConfig(t, v1.Config{Env: []string{"A=1", "LD_PRELOAD=/x"}, User: "0", WorkingDir: "/app", Cmd: []string{"sh"}},
		tarOf(t, func(m *maker) {
			m.addDir("usr")
			m.addDir("usr/lib")
			m.addDir("app")
			m.addFile("usr/lib/x", "1")
			m.addLink("lib", "usr/lib")
			m.addFile("gone", "")
		}),
		tarOf(t, func(m *maker) { m.addFile("lib/y", "2"); m.addFile(".wh.gone", "") }))
	ref := h.push(img, "team/app:v1")
	var steps []brig.Progress
	got, err := a.store.Pull(t.Context(), brig.ImagePull{Ref: ref}, func(p brig.Progress) { steps = append(steps, p) })
	if err != nil {
		t.Fatal(err)
	}
	id, _ := img.ConfigName()
	manifest, _ := img.Digest()
	if got.Digest != id.String() || got.Manifest != manifest.String() || got.Source != "registry" || !slices.Equal(got.Names, []string{ref}) {
		t.Errorf("%+v", got)
	}
	if c := got.Config; c.Env["A"] != "1" || len(c.Env) != 1 || c.User != "root" || c.WorkingDir != "/app" || !slices.Equal(c.Command, []string{"sh"}) {
		t.Errorf("%+v", c)
	}
	if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "LD_PRELOAD") {
		t.Errorf("notes %q", got.Notes)
	}
	a.checkFiles(t, got, "app/", "lib->usr/lib", "usr/", "usr/lib/", "usr/lib/x=1", "usr/lib/y=2")
	layers, _ := img.Layers()
	size, _ := layers[0].Size()
	if !slices.Contains(steps, brig.Progress{Step: "fetch layer 1 of 2", Done: size, Total: size}) {
		t.Errorf("steps %v", steps)
	}

	// Every form of the name resolves, and a stored image is not fetched again.
	n := h.blobRequests.Load()
	for _, form := range []string{ref, ref + "@" + manifest.String(), got.Digest, manifest.String()} {
		if r, err := a.store.Resolve(t.Context(), form); err != nil || r.Digest != got.Digest {
			t.Errorf("%s: %v", form, err)
		}
	}
	other := h.push(img, "team/app:v2")
	if got, err = a.pull(t, other); err != nil || !slices.Equal(got.Names, []string{ref, other}) {
		t.Errorf("%v, %v", got, err)
	}
	if h.blobRequests.Load() != n {
		t.Error("fetched again")
	}
	if err := a.store.Remove(t.Context(), ref); err != nil {
		t.Error(err)
	}
	if err := a.store.Remove(t.Context(), other); err != nil {
		t.Error(err)
	}
	if _, err := a.store.Resolve(t.Context(), manifest.String()); brig.KindOf(err) != brig.NotFound {
		t.Errorf("still known: %v", err)
	}
}

func TestNamesHaveFamiliarForm(t *testing.T) {
	t.Parallel()
	d := "sha256:" + strings.Repeat("a", 64)
	for s, want := range map[string]string{
		"python": "python:latest", "python:3.11-slim": "python:3.11-slim",
		"docker.io/library/python:3.11-slim": "python:3.11-slim", "index.docker.io/python": "python:latest",
		"docker.io/acme/x:1": "acme/x:1", "registry.example/a/b": "registry.example/a/b:latest", "localhost:5000/x:T-1": "localhost:5000/x:T-1",
		"python@" + d: "python@" + d, "python:3@" + d: "python@" + d, "docker.io/library/python:3@" + d: "python@" + d,
		"registry.example/library/x:1": "registry.example/library/x:1",
	} {
		r, err := parseReference(s)
		if err != nil || r.shortName() != want {
			t.Errorf("%s: %v, %v; want %s", s, r, err, want)
			continue
		}
		if again, err := parseReference(want); err != nil || again.shortName() != want {
			t.Errorf("%s is not its own short form: %v, %v", want, again, err)
		}
	}
	for _, s := range []string{
		"", "a/../b:1", "../x", "http://x/y", "x:y:z", "u@h/x", "a b", "x@sha256:12", "X:1", "a//b", "a/./b",
		"host:99999999/x", "x?y=1", "x:1\x00", "x:1\n", "x#1", "[::1/x", "x:-a", "python@sha512:" + strings.Repeat("a", 128),
		strings.Repeat("a/", 300) + "b", "%2e%2e/x",
	} {
		if r, err := parseReference(s); err == nil {
			t.Errorf("%q is %s", s, r.shortName())
		} else if e := brig.AsError(err); e.Kind != brig.InvalidArgument || e.Field != "ref" || e.Hint == "" {
			t.Errorf("%q: %+v", s, e)
		}
	}
}

// TestAllFormsOfPulledNameResolve checks that all forms of a name resolve to the image.
func TestAllFormsOfPulledNameResolve(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	img, err := a.importBytes(t, smallArchive(t))
	if err != nil {
		t.Fatal(err)
	}
	manifest := "sha256:" + strings.Repeat("e", 64)
	l := &layeredImage{name: "python:3.11-slim", manifest: manifest}
	if _, err := a.store.reuseStored(t.Context(), l, img.Digest); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"python:3.11-slim", "docker.io/library/python:3.11-slim", "python:3.11-slim@" + manifest, "python@" + manifest, "test"} {
		if r, err := a.store.Resolve(t.Context(), form); err != nil || r.Digest != img.Digest {
			t.Errorf("%s: %v", form, err)
		}
	}
	for _, form := range []string{"python", "python:3.11", "registry.example/library/python:3.11-slim", "python@sha256:" + strings.Repeat("d", 64)} {
		_, err := a.store.Resolve(t.Context(), form)
		if brig.KindOf(err) != brig.NotFound || !strings.Contains(brig.AsError(err).Hint, "brig image pull "+form) {
			t.Errorf("%s: %v", form, err)
		}
	}
}

func TestConcurrentPullsShareDownload(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	ref := h.push(imageOf(t, smallArchive(t)), "x:1")
	gate := make(chan struct{})
	h.setIntercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			<-gate
		}
		return false
	})
	const n = 8
	var wg sync.WaitGroup
	errs := make([]error, n)
	given, cancel := context.WithCancel(t.Context())
	for i := range n {
		ctx := t.Context()
		if i == 0 {
			ctx = given
		}
		wg.Go(func() { _, errs[i] = a.store.Pull(ctx, brig.ImagePull{Ref: ref}, func(brig.Progress) {}) })
	}
	for h.blobRequests.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	for waiting := 0; waiting < n; time.Sleep(time.Millisecond) {
		a.store.flights.mu.Lock()
		for _, fl := range a.store.flights.byKey {
			waiting = fl.waiting
		}
		a.store.flights.mu.Unlock()
	}
	cancel() // one caller leaves, possibly the first
	time.Sleep(20 * time.Millisecond)
	close(gate)
	wg.Wait()
	if brig.KindOf(errs[0]) != brig.Canceled {
		t.Errorf("who went: %v", errs[0])
	}
	if err := errors.Join(errs[1:]...); err != nil {
		t.Error(err)
	}
	if got := h.blobRequests.Load(); got != 2 { // a configuration and a layer
		t.Errorf("%d blobs were fetched", got)
	}
	if err := a.checkUnchanged(); err != nil {
		t.Error(err)
	}
}

func TestPullSelectsPlatform(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	var adds []mutate.IndexAddendum
	for i, p := range []v1.Platform{{OS: "linux", Architecture: "arm64", Variant: "v8"}, {OS: "linux", Architecture: "amd64"}, {OS: "windows", Architecture: "amd64"}, {OS: "unknown", Architecture: "unknown"}} {
		img := imageOf(t, tarOf(t, func(m *maker) { m.addFile("usr/which", fmt.Sprint(i)) }))
		f, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		f.Architecture, f.Variant = p.Architecture, p.Variant
		if img, err = mutate.ConfigFile(img, f); err != nil {
			t.Fatal(err)
		}
		adds = append(adds, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p}})
	}
	list := mutate.AppendManifests(empty.Index, adds...)
	tag, err := name.NewTag(h.host + "/multi:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag, list); err != nil {
		t.Fatal(err)
	}
	for platform, want := range map[string]string{"linux/amd64": "1", "linux/arm64": "0", "linux/arm64/v8": "0"} {
		img, err := a.store.Pull(t.Context(), brig.ImagePull{Ref: tag.String(), Platform: platform}, nil)
		if err != nil {
			t.Fatalf("%s: %v", platform, err)
		}
		a.checkFiles(t, img, "usr/", "usr/which="+want)
	}
	d, _ := list.Digest()
	if _, err := a.pull(t, h.host+"/multi@"+d.String()); err != nil {
		t.Error(err)
	}
	if _, err := a.store.Resolve(t.Context(), h.host+"/multi:1@"+d.String()); err != nil {
		t.Error(err)
	}
	_, err = a.store.Pull(t.Context(), brig.ImagePull{Ref: tag.String(), Platform: "linux/riscv64"}, nil)
	a.checkRefused(t, err, brig.InvalidArgument, "platform", "there are: linux/amd64, linux/arm64/v8, windows/amd64")
	for _, bad := range []string{"linux", "a/b/c/d", "/", strings.Repeat("x", 99)} {
		_, err = a.store.Pull(t.Context(), brig.ImagePull{Ref: tag.String(), Platform: bad}, nil)
		a.checkRefused(t, err, brig.InvalidArgument, "platform", "linux/amd64")
	}
}
