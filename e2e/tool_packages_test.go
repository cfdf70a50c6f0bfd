package e2e

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/tool"
)

// index is a package index for pip and npm that runs on the host.
type index struct {
	*httptest.Server
	requests atomic.Int64
}

// wheel returns a package for pip, with one module of the given source.
func wheel(t *testing.T, name, version, source string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := name + "-" + version + ".dist-info/"
	for _, f := range [][2]string{
		{name + ".py", source},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", name + ".py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		w, err := z.Create(f[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// nodePackage returns a package for npm, with one module of the given source.
func nodePackage(t *testing.T, name, version, source string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range [][2]string{
		{"package/package.json", fmt.Sprintf(`{"name":%q,"version":%q,"main":"index.js"}`, name, version)}, {"package/index.js", source},
	} {
		if err := w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func newIndex(t *testing.T) *index {
	t.Helper()
	x := &index{}
	mux := http.NewServeMux()
	for _, version := range []string{"1.0", "2.0"} {
		file := "brigtestgreet-" + version + "-py3-none-any.whl"
		content := wheel(t, "brigtestgreet", version, "VERSION = '"+version+"'\n")
		mux.HandleFunc("GET /files/"+file, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
	}
	mux.HandleFunc("GET /simple/brigtestgreet/", func(w http.ResponseWriter, _ *http.Request) {
		for _, version := range []string{"1.0", "2.0"} {
			file := "brigtestgreet-" + version + "-py3-none-any.whl"
			fmt.Fprintf(w, "<a href=\"/files/%s\">%s</a>\n", file, file)
		}
	})
	node := nodePackage(t, "brig-test-shout", "1.0.0", "exports.shout = (s) => s.toUpperCase()\n")
	sum := sha512.Sum512(node)
	mux.HandleFunc("GET /brig-test-shout", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"name": "brig-test-shout", "dist-tags": map[string]string{"latest": "1.0.0"},
			"versions": map[string]any{"1.0.0": map[string]any{
				"name": "brig-test-shout", "version": "1.0.0", "main": "index.js",
				"dist": map[string]string{"tarball": "http://" + r.Host + "/shout.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])},
			}},
		})
	})
	mux.HandleFunc("GET /shout.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(node) })
	x.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.requests.Add(1)
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(x.Close)
	return x
}

// TestToolPackages verifies that the packages of a setup and of a tool are installed from an
// index that is accessible only during the installation.
//
//suite:part core full
func TestToolPackages(t *testing.T) {
	needRoot(t)
	x := newIndex(t)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, x.Listener.Addr().String())
	}
	allow := brig.Egress{Rules: []brig.EgressRule{{Host: "index.brig-test.com"}}}
	shelf := &tool.LayerCache{Dir: filepath.Join(t.TempDir(), "layers"), MaxLayer: brig.GiB}
	e, ctx := engineWith(t, engine.Options{
		Egress: engine.EgressOptions{Resolver: fixedNames{"index.brig-test.com": netip.MustParseAddr("93.184.215.14")}, Dial: dial},
		Tools: engine.ToolOptions{
			Layers: shelf, Index: tool.Index{PyPI: "http://index.brig-test.com/simple", NPM: "http://index.brig-test.com/"}, PackageEgress: allow,
		},
		TypeScript: identityCompiler{},
	})
	call := func(t *testing.T, tl brig.Tool) *brig.ToolResult {
		t.Helper()
		res, err := e.RunTool(ctx, tl)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	version := brig.Tool{Source: "import brigtestgreet\ndef f():\n    return brigtestgreet.VERSION, brigtestgreet.__file__"}
	t.Run("tool", func(t *testing.T) {
		with := version
		with.Python = []string{"brigtestgreet==1.0"}
		if res := call(t, with); !strings.Contains(res.Text, "1.0") || !strings.Contains(res.Text, "/opt/brig-tools/0/") {
			t.Fatalf("%+v: %s", res, res.Stderr.Head)
		}
		if res := call(t, version); res.Error == nil || res.Error.Name != "ModuleNotFoundError" {
			t.Errorf("a tool that did not ask for the package has it: %+v", res)
		}
		requests := x.requests.Load()
		with.Source = `
import brigtestgreet, os, urllib.request
def f():
    out = []
    for attempt in (lambda: open(brigtestgreet.__file__, "a"), lambda: os.remove(brigtestgreet.__file__),
                    lambda: os.rename("/opt/brig-tools/0", "/tmp/x"), lambda: urllib.request.urlopen("http://index.brig-test.com/simple/", timeout=3)):
        try:
            attempt(); out.append("done")
        except OSError as e:
            out.append("refused")
    return out`
		if res := call(t, with); !res.Reused || res.Text != "['refused', 'refused', 'refused', 'refused']" {
			t.Errorf("what a tool does to its packages: %+v", res)
		}
		if n := x.requests.Load(); n != requests {
			t.Errorf("got %d index requests for cached packages, want 0", n-requests)
		}
	})
	t.Run("setup", func(t *testing.T) {
		if _, err := e.PutToolSetup(ctx, brig.ToolSetup{Kind: brig.ToolLocal, Config: json.RawMessage(`{"pip_requirements":[{"name":"brigtestgreet","version":"2.0"}]}`)}); err != nil {
			t.Fatal(err)
		}
		if res := call(t, version); !strings.Contains(res.Text, "2.0") {
			t.Fatalf("the setup's package: %+v", res)
		}
		with := version
		with.Python = []string{"brigtestgreet==1.0"}
		if res := call(t, with); !strings.Contains(res.Text, "1.0") {
			t.Errorf("the tool's own package does not win: %+v", res)
		}
		// Use a new sandbox, which must take the layer from the layer cache.
		requests := x.requests.Load()
		if _, err := e.RenewToolSetup(ctx, brig.ToolLocal); err != nil {
			t.Fatal(err)
		}
		if res := call(t, version); res.Reused || !strings.Contains(res.Text, "2.0") || x.requests.Load() != requests {
			t.Errorf("a fresh box does not take the layer from the shelf: %+v", res)
		}
	})
	t.Run("another tenant", func(t *testing.T) {
		requests := x.requests.Load()
		with := version
		with.Python = []string{"brigtestgreet==1.0"}
		res, err := e.RunTool(brig.WithActor(ctx, brig.Actor{Name: "eve", Tenant: "rival", Role: brig.Member}), with)
		if err != nil || !strings.Contains(res.Text, "1.0") {
			t.Fatalf("%+v, %v", res, err)
		}
		if x.requests.Load() == requests {
			t.Error("it was given what another tenant's packages have made")
		}
	})
	t.Run("typescript", func(t *testing.T) {
		res := call(t, brig.Tool{
			Language: brig.TypeScript, Node: []string{"brig-test-shout@1.0.0"}, Schema: json.RawMessage(`{"name":"f","parameters":{"properties":{"s":{"type":"string"}}}}`),
			Arguments: json.RawMessage(`{"s":"hi"}`), Source: "import { shout } from 'brig-test-shout'\nexport function f(s) { return shout(s) }",
		})
		if res.Text != "HI" {
			t.Errorf("%+v: %s", res, res.Stderr.Head)
		}
	})
	t.Run("broken", func(t *testing.T) {
		before, err := e.List(ctx, brig.ListOptions{States: []brig.State{brig.Running}})
		if err != nil {
			t.Fatal(err)
		}
		with := version
		with.Name, with.Python = "f", []string{"brigtestgreet==9.9"}
		res := call(t, with)
		for _, words := range []string{
			"Failed to install tool pip requirement", "brigtestgreet==9.9", "'f'", "E2B sandbox", "package version incompatibility",
			"Consider updating the package version or removing the version constraint",
		} {
			if !strings.Contains(res.Text, words) {
				t.Errorf("%q does not say %q", res.Text, words)
			}
		}
		eventuallyGone(t, e, ctx, len(before.Sandboxes))
	})
	t.Run("hostile requirements", func(t *testing.T) {
		for _, r := range []string{"--index-url=http://x", "-r/etc/passwd", "./x", "x @ http://y/z.whl", "git+https://x", "a b", "x;touch y", "", "/x.whl", "x\n--pre"} {
			if _, err := e.RunTool(ctx, brig.Tool{Source: version.Source, Python: []string{r}}); brig.KindOf(err) != brig.InvalidArgument {
				t.Errorf("pip is given %q: %v", r, err)
			}
			if _, err := e.RunTool(ctx, brig.Tool{Source: version.Source, Node: []string{r}}); brig.KindOf(err) != brig.InvalidArgument {
				t.Errorf("npm is given %q: %v", r, err)
			}
		}
	})
}

// identityCompiler is a TypeScript compiler that returns its source unchanged.
type identityCompiler struct{}

func (identityCompiler) Program(_ context.Context, source string) (string, error) { return source, nil }
func (identityCompiler) Cell(_ context.Context, source string) (string, error)    { return source, nil }

// eventuallyGone waits until at most limit sandboxes are running.
func eventuallyGone(t *testing.T, e *engine.Engine, ctx context.Context, limit int) {
	t.Helper()
	for end := time.Now().Add(2 * promptTimeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		page, err := e.List(ctx, brig.ListOptions{States: []brig.State{brig.Running}})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Sandboxes) <= limit {
			return
		}
	}
	t.Error("the box of what failed stays")
}
