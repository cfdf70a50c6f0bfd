package image

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func TestPullSendsCredentialsToRegistry(t *testing.T) {
	t.Parallel()
	basic := func(w http.ResponseWriter, r *http.Request) bool {
		if u, p, _ := r.BasicAuth(); u == "ann" && p == "secret" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	h, a := newHub(t), newArena(t)
	ref := h.push(imageOf(t, smallArchive(t)), "x:1")
	bearer := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" {
			if u, p, _ := r.BasicAuth(); u != "ann" || p != "secret" {
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			_, _ = io.WriteString(w, `{"token":"tok"}`)
			return true
		}
		if r.Header.Get("Authorization") == "Bearer tok" {
			return false
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="x"`, h.host))
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	for name, front := range map[string]func(http.ResponseWriter, *http.Request) bool{"basic": basic, "bearer": bearer} {
		h.setIntercept(front)
		_, err := a.pull(t, ref)
		a.checkRefused(t, err, brig.InvalidArgument, "ref", "give a user name")
		_, err = a.store.Pull(t.Context(), brig.ImagePull{Ref: ref, Username: "ann", Password: "wrong"}, nil)
		a.checkRefused(t, err, brig.InvalidArgument, "username", "does not accept these credentials")
		if strings.Contains(fmt.Sprint(err), "wrong") || strings.Contains(fmt.Sprint(err), base64.StdEncoding.EncodeToString([]byte("ann:wrong"))) {
			t.Errorf("%s: the error has the password: %v", name, err)
		}
		if _, err = a.store.Pull(t.Context(), brig.ImagePull{Ref: ref, Username: "ann", Password: "secret"}, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := a.store.Remove(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
	h.setIntercept(bearer)
	if _, err := a.store.Pull(t.Context(), brig.ImagePull{Ref: ref, Password: "tok"}, nil); err != nil {
		t.Errorf("token: %v", err)
	}
}

func TestPullReportsMissingImage(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	h.push(imageOf(t, smallArchive(t)), "x:1")
	for _, what := range []string{"/y:1", "/x:2", "/x@sha256:" + strings.Repeat("0", 64)} {
		_, err := a.pull(t, h.host+what)
		a.checkRefused(t, err, brig.NotFound, "", "has no image "+h.host+what)
	}
	srv := httptest.NewServer(http.NotFoundHandler())
	gone := strings.TrimPrefix(srv.URL, "http://")
	_, err := a.pull(t, gone+"/x:1")
	if err == nil {
		t.Error("pulled from what is no registry")
	}
	srv.Close()
	_, err = a.pull(t, gone+"/x:1")
	a.checkRefused(t, err, brig.ConnectionFailed, "", "cannot be reached")
	_, err = a.pull(t, "sha256:"+strings.Repeat("0", 64))
	a.checkRefused(t, err, brig.InvalidArgument, "ref", "identify a registry")
}

// TestPullRejectsWrongContent checks that a pull reports wrong blobs and manifests
// of a registry and leaves no files.
func TestPullRejectsWrongContent(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	img := imageOf(t, compressGzip(t, smallArchive(t)))
	ref := h.push(img, "x:1")
	layers, _ := img.Layers()
	layer, _ := layers[0].Digest()
	config, _ := img.ConfigName()
	manifest, _ := img.Digest()
	answer := func(of string, change func([]byte) []byte) {
		h.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, of) {
				return false
			}
			rec := httptest.NewRecorder()
			h.inner.ServeHTTP(rec, r)
			b := change(rec.Body.Bytes())
			w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
			if b == nil { // a broken connection
				w.Header().Set("Content-Length", rec.Header().Get("Content-Length"))
				_, _ = w.Write(rec.Body.Bytes()[:10])
				panic(http.ErrAbortHandler)
			}
			_, _ = w.Write(b)
			return true
		})
	}
	flip := func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 1; return b }
	short := func(b []byte) []byte { return b[:len(b)-1] }
	long := func(b []byte) []byte { return append(bytes.Clone(b), 'x') }
	torn := func([]byte) []byte { return nil }
	for _, c := range []struct {
		what   string
		of     string
		change func([]byte) []byte
		kind   brig.Kind
		field  string
		says   string
	}{
		{"flipped layer", layer.String(), flip, brig.InvalidArgument, "ref", "should have the digest"},
		{"short layer", layer.String(), short, brig.ConnectionFailed, "", "breaks off"},
		{"long layer", layer.String(), long, brig.InvalidArgument, "ref", "larger than"},
		{"torn layer", layer.String(), torn, brig.ConnectionFailed, "", "breaks off"},
		{"flipped configuration", config.String(), flip, brig.InvalidArgument, "ref", "should have the digest"},
		{"short configuration", config.String(), short, brig.ConnectionFailed, "", "breaks off"},
		{"not JSON", "/manifests/1", func([]byte) []byte { return []byte("{") }, brig.InvalidArgument, "ref", "damaged"},
		{"empty manifest", "/manifests/1", func([]byte) []byte { return []byte("{}") }, brig.InvalidArgument, "ref", "damaged"},
		{"huge manifest", "/manifests/1", func([]byte) []byte { return bytes.Repeat([]byte(" "), maxConfig+10) }, brig.InvalidArgument, "ref", "larger than"},
	} {
		answer(c.of, c.change)
		_, err := a.pull(t, ref)
		t.Log(c.what, err)
		a.checkRefused(t, err, c.kind, c.field, c.says)
	}
	answer(manifest.String(), flip)
	if _, err := a.pull(t, h.host+"/x@"+manifest.String()); err == nil {
		t.Error("a manifest that is not what was asked for")
	}
	if list, _ := a.store.listStored(); len(list) != 0 {
		t.Errorf("left: %v", list)
	}
	h.setIntercept(nil)
	if _, err := a.pull(t, ref); err != nil {
		t.Error(err)
	}
}

// TestPullRestartsBrokenDownload checks that a pull restarts a broken download from the
// beginning.
func TestPullRestartsBrokenDownload(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	ref := h.push(imageOf(t, smallArchive(t)), "x:1")
	fails := 2
	h.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") || fails == 0 {
			return false
		}
		if fails--; fails == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		rec := httptest.NewRecorder()
		h.inner.ServeHTTP(rec, r)
		w.Header().Set("Content-Length", rec.Header().Get("Content-Length"))
		_, _ = w.Write(rec.Body.Bytes()[:100])
		panic(http.ErrAbortHandler)
	})
	if _, err := a.pull(t, ref); err != nil {
		t.Error(err)
	}
	if fails != 0 {
		t.Errorf("%d failures to go", fails)
	}
}

func TestCanceledPullLeavesNoFiles(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	img := imageOf(t, smallArchive(t))
	ref := h.push(img, "x:1")
	layers, _ := img.Layers()
	d, _ := layers[0].Digest()
	ctx, cancel := context.WithCancel(t.Context())
	h.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, d.String()) {
			return false
		}
		w.Header().Set("Content-Length", "100000")
		for { // one byte at a time
			if _, err := w.Write([]byte("x")); err != nil || r.Context().Err() != nil {
				return true
			}
			_ = http.NewResponseController(w).Flush()
			cancel()
			time.Sleep(5 * time.Millisecond)
		}
	})
	start := time.Now()
	_, err := a.store.Pull(ctx, brig.ImagePull{Ref: ref}, nil)
	if brig.KindOf(err) != brig.Canceled || time.Since(start) > time.Minute { // the complete download would take eight
		t.Errorf("%v after %v", err, time.Since(start))
	}
	if err := a.checkUnchanged(); err != nil {
		t.Error(err)
	}
}

func TestPullUsesMirrorsAndAllowlist(t *testing.T) {
	t.Parallel()
	mirror, h, a := newHub(t), newHub(t), newArena(t)
	img := imageOf(t, smallArchive(t))
	mirror.push(img, "cache/library/thing:1")
	a.store.opts.Mirrors = map[string][]string{"docker.io": {"127.0.0.1:1", "http://" + mirror.host + "/cache"}}
	var seen []string
	mirror.setIntercept(func(_ http.ResponseWriter, r *http.Request) bool {
		seen = append(seen, r.Header.Get("Authorization"))
		return false
	})
	got, err := a.store.Pull(t.Context(), brig.ImagePull{Ref: "thing:1", Username: "ann", Password: "secret"}, nil)
	if err != nil || got.Names[0] != "thing:1" {
		t.Fatalf("%+v, %v", got, err)
	}
	if strings.Join(seen, "") != "" {
		t.Errorf("the mirror was told the password: %q", seen)
	}
	ref := h.push(img, "own/x:1")
	a.store.opts.Registries = []string{"docker.io", h.host + "/own/"}
	if _, err := a.pull(t, ref); err != nil {
		t.Error(err)
	}
	for _, no := range []string{h.host + "/other/x:1", h.host + "/owner:1", "registry.example/a/b:1", "docker.io.evil.example/x:1"} {
		_, err := a.pull(t, no)
		a.checkRefused(t, err, brig.PolicyBlocked, "", "docker.io, "+h.host)
	}
}

// TestPullMissingCannotReachServerNetwork checks that a client that creates sandboxes cannot use a pull
// to reach the server's network.
func TestPullMissingCannotReachServerNetwork(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	ref := h.push(imageOf(t, smallArchive(t)), "x:1")
	_, err := a.store.PullMissing(t.Context(), ref)
	a.checkRefused(t, err, brig.NotFound, "", "brig image pull "+ref)
	a.store.opts.PullMissing = true
	for _, r := range []string{ref, "localhost:1/x:1", "[::1]:1/x:1", "169.254.169.254/latest/meta:1", "10.0.0.1/x:1"} {
		_, err = a.store.PullMissing(t.Context(), r)
		a.checkRefused(t, err, brig.PolicyBlocked, "", "not at a public address")
	}
	a.store.opts.Registries = []string{h.host}
	if _, err = a.store.PullMissing(t.Context(), ref); err != nil {
		t.Error(err)
	}
	_, err = a.store.PullMissing(t.Context(), "host!")
	a.checkRefused(t, err, brig.NotFound, "", "host!")
	for ip, want := range map[string]bool{"1.1.1.1": true, "10.1.1.1": false, "::1": false, "::ffff:127.0.0.1": false,
		"100.64.1.1": false, "fe80::1": false, "2606:4700::1": true, "0.0.0.0": false, "169.254.169.254": false, "64:ff9b::a00:1": false} {
		if isPublic(netip.MustParseAddr(ip)) != want {
			t.Errorf("%s is public: %t", ip, !want)
		}
	}
}

// TestRegistryCannotReachMetadataAddress checks that no registry can reach a cloud's metadata
// address, even with the operator's permission. The control is an address that
// only an operator can allow.
func TestRegistryCannotReachMetadataAddress(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]struct{ anyone, operator bool }{
		"1.1.1.1": {true, true}, "10.1.2.3": {false, true}, "127.0.0.1": {false, true}, "fd00::1": {false, true},
		"169.254.169.254": {}, "fd00:ec2::254": {}, "100.100.100.200": {}, "168.63.129.16": {}, "0.0.0.0": {}, "::": {}, "fe80::1": {},
		"::ffff:169.254.169.254": {}, "64:ff9b::a9fe:a9fe": {}, "2002:a9fe:a9fe::1": {}, "224.0.0.1": {},
	} {
		for _, anywhere := range []bool{false, true} {
			err := access{anywhere: anywhere}.checkAddress("x", netip.MustParseAddr(addr))
			if allowed := want.anyone || anywhere && want.operator; (err == nil) != allowed {
				t.Errorf("%s, anywhere %v: %v", addr, anywhere, err)
			}
		}
	}
}

// TestPlainHTTPRequiresLoopbackOrConfiguration checks that plain HTTP works only on the loopback
// address and for registries that are configured for it.
func TestPlainHTTPRequiresLoopbackOrConfiguration(t *testing.T) {
	t.Parallel()
	g := newGuard(access{anywhere: true})
	defer g.close()
	for u, want := range map[string]bool{"http://10.1.2.3/v2/": false, "http://example.com/v2/": false, "http://localhost.evil/": false} {
		r, _ := http.NewRequest(http.MethodGet, u, nil)
		if _, err := g.RoundTrip(r); strings.Contains(fmt.Sprint(err), errPlain.Error()) == want {
			t.Errorf("%s: %v", u, err)
		}
	}
	if isLoopback("127.0.0.1.example") || !isLoopback("127.9.9.9") || !isLoopback("::1") {
		t.Error("loopback")
	}
}

func TestPullRejectsNonImages(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	img := imageOf(t, smallArchive(t))
	h.push(img, "x:1")
	good, _ := img.RawManifest()
	serve := func(kind string, change func(*v1.Manifest)) {
		var m v1.Manifest
		if err := json.Unmarshal(good, &m); err != nil {
			t.Fatal(err)
		}
		change(&m)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		h.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/manifests/1") {
				return false
			}
			w.Header().Set("Content-Type", kind)
			_, _ = io.Copy(w, bytes.NewReader(b))
			return true
		})
	}
	const oci = "application/vnd.oci.image.manifest.v1+json"
	for says, f := range map[string]func(*v1.Manifest){
		"the most is 500": func(m *v1.Manifest) {
			for len(m.Layers) < 10_000 {
				m.Layers = append(m.Layers, m.Layers[0])
			}
		},
		"2 layers and its configuration 1": func(m *v1.Manifest) { m.Layers = append(m.Layers, m.Layers[0]) },
		"not an image but":                 func(m *v1.Manifest) { m.Config.MediaType = "application/vnd.cncf.helm.config.v1+json" },
		"not understood":                   func(m *v1.Manifest) { m.Layers[0].MediaType = "application/wasm\x1b" },
		"configuration is larger":          func(m *v1.Manifest) { m.Config.Size = 1 << 40 },
		"digest and size":                  func(m *v1.Manifest) { m.Layers[0].Digest = v1.Hash{Algorithm: "sha512", Hex: strings.Repeat("a", 128)} },
	} {
		serve(oci, f)
		_, err := a.pull(t, h.host+"/x:1")
		a.checkRefused(t, err, brig.InvalidArgument, "ref", says)
	}
	serve("application/vnd.docker.distribution.manifest.v1+json", func(*v1.Manifest) {})
	_, err := a.pull(t, h.host+"/x:1")
	a.checkRefused(t, err, brig.InvalidArgument, "ref", "old format")
}
