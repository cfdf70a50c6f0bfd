package e2e

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/docker"
)

// images verifies that the engine can pull from a registry that requires authentication.
func (l *dockerLab) images(t *testing.T) {
	const user, password = "puller", "correct horse"
	var requests atomic.Int64
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			return
		}
		requests.Add(1)
		inner.ServeHTTP(w, r)
	}))
	defer server.Close()
	domain := strings.TrimPrefix(server.URL, "http://")
	ref := domain + "/team/tool:1"
	push := func() (digest string) {
		t.Helper()
		img, err := random.Image(1000, 1)
		if err != nil {
			t.Fatal(err)
		}
		to, err := name.ParseReference(ref)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(to, img, remote.WithAuth(&authn.Basic{Username: user, Password: password})); err != nil {
			t.Fatal(err)
		}
		d, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d.String()
	}
	find := func(pull, password, ref string) (*brig.Image, error) {
		p := l.provider(t, t.TempDir(), func(o *docker.Options) {
			o.Pull, o.Logins = pull, map[string]docker.Login{domain: {Username: user, Password: password}}
		})
		return p.Image(t.Context(), ref)
	}
	first := push()
	before := requests.Load()
	if _, err := find("never", password, ref); brig.KindOf(err) != brig.NotFound || requests.Load() != before {
		t.Errorf("pulling never: %v", err)
	}
	if _, err := find("missing", "wrong", ref); err == nil || strings.Contains(brig.AsError(err).Message, "wrong") {
		t.Errorf("a wrong password: %v", err)
	}
	img, err := find("missing", password, ref)
	if err != nil || img.Manifest != first {
		t.Fatalf("pulled %+v, %v; want %s", img, err, first)
	}
	if same, err := find("never", "", img.Digest); err != nil || same.Digest != img.Digest {
		t.Errorf("by its digest it is %+v, %v", same, err)
	}
	// The name now refers to another image. The engine keeps the local image unless the caller
	// requests a new pull.
	second := push()
	if is, err := find("missing", password, ref); err != nil || is.Digest != img.Digest {
		t.Errorf("local first: %+v, %v", is, err)
	}
	is, err := find("always", password, ref)
	if err != nil || is.Digest == img.Digest || is.Manifest != second {
		t.Errorf("always: %+v, %v; want %s", is, err, second)
	}
	if _, err := find("missing", password, domain+"/team/none:1"); brig.KindOf(err) != brig.NotFound {
		t.Errorf("one that nobody has: %v", err)
	}
	for _, bad := range []string{"", "A B", "x@sha256:zz", "http://x/y"} {
		if _, err := find("missing", password, bad); brig.AsError(err) == nil || brig.AsError(err).Field != "image" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, d := range []string{img.Digest, ref} {
		if _, err := l.api.ImageRemove(t.Context(), d, client.ImageRemoveOptions{Force: true, PruneChildren: true}); err != nil {
			t.Error(err)
		}
	}
}
