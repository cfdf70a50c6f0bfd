package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"
)

func compressGzip(t testing.TB, b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func compressZstd(t testing.TB, b []byte) []byte {
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestLayersModifyLowerLayers checks how layers change the layers below them.
func TestLayersModifyLowerLayers(t *testing.T) {
	t.Parallel()
	below := func(m *maker) {
		m.addDir("d")
		m.addDir("d/sub")
		m.addFile("d/a", "a")
		m.addFile("d/sub/b", "b")
		m.addFile("f", "f")
		m.addLink("l", "d")
	}
	for name, c := range map[string]struct {
		layers []func(*maker)
		want   []string
	}{
		"replace":           {[]func(*maker){below, func(m *maker) { m.addFile("f", "new") }}, []string{"d/", "d/a=a", "d/sub/", "d/sub/b=b", "f=new", "l->d"}},
		"hide a file":       {[]func(*maker){below, func(m *maker) { m.addFile("d/.wh.a", "") }}, []string{"d/", "d/sub/", "d/sub/b=b", "f=f", "l->d"}},
		"hide a folder":     {[]func(*maker){below, func(m *maker) { m.addFile(".wh.d", "") }}, []string{"f=f", "l->d"}},
		"hide a link":       {[]func(*maker){below, func(m *maker) { m.addFile(".wh.l", "") }}, []string{"d/", "d/a=a", "d/sub/", "d/sub/b=b", "f=f"}},
		"hide nothing":      {[]func(*maker){below, func(m *maker) { m.addFile("d/.wh.none", ""); m.addFile(".wh..wh.plnk", "") }}, []string{"d/", "d/a=a", "d/sub/", "d/sub/b=b", "f=f", "l->d"}},
		"opaque first":      {[]func(*maker){below, func(m *maker) { m.addDir("d"); m.addFile("d/.wh..wh..opq", ""); m.addFile("d/new", "n") }}, []string{"d/", "d/new=n", "f=f", "l->d"}},
		"opaque last":       {[]func(*maker){below, func(m *maker) { m.addFile("d/new", "n"); m.addFile("d/sub/n", "n"); m.addFile("d/.wh..wh..opq", "") }}, []string{"d/", "d/new=n", "d/sub/", "d/sub/n=n", "f=f", "l->d"}},
		"hide and bring":    {[]func(*maker){below, func(m *maker) { m.addDir("d"); m.addFile("d/n", "n"); m.addFile(".wh.d", "") }}, []string{"d/", "d/n=n", "f=f", "l->d"}},
		"bring after":       {[]func(*maker){below, func(m *maker) { m.addFile(".wh.f", "") }, func(m *maker) { m.addFile("f", "again") }}, []string{"d/", "d/a=a", "d/sub/", "d/sub/b=b", "f=again", "l->d"}},
		"file for a folder": {[]func(*maker){below, func(m *maker) { m.addFile("d", "now") }}, []string{"d=now", "f=f", "l->d"}},
		"folder for a file": {[]func(*maker){below, func(m *maker) { m.addDir("f"); m.addFile("f/x", "x") }}, []string{"d/", "d/a=a", "d/sub/", "d/sub/b=b", "f/", "f/x=x", "l->d"}},
		"folder for a link": {[]func(*maker){below, func(m *maker) { m.addDir("l"); m.addFile("l/x", "x") }}, []string{"d/", "d/a=a", "d/sub/", "d/sub/b=b", "f=f", "l/", "l/x=x"}},
		"through a link":    {[]func(*maker){below, func(m *maker) { m.addFile("l/x", "x"); m.addHardLink("l/y", "l/a") }}, []string{"d/", "d/a=a", "d/sub/", "d/sub/b=b", "d/x=x", "d/y=a", "f=f", "l->d"}},
		"absolute link":     {[]func(*maker){func(m *maker) { m.addDir("usr"); m.addLink("v", "/usr/./../usr") }, func(m *maker) { m.addFile("v/r/x", "x") }}, []string{"usr/", "usr/r/", "usr/r/x=x", "v->/usr/./../usr"}},
		"climbing link":     {[]func(*maker){func(m *maker) { m.addDir("a/b"); m.addLink("a/b/l", "../../../../c") }, func(m *maker) { m.addFile("a/b/l/x", "x") }}, []string{"a/", "a/b/", "a/b/l->../../../../c", "c/", "c/x=x"}},
		"hard link below":   {[]func(*maker){below, func(m *maker) { m.addHardLink("h", "d/a"); m.addFile(".wh.d", "") }}, []string{"f=f", "h=a", "l->d"}},
		"the same twice":    {[]func(*maker){below, func(m *maker) { m.addFile("f", "1"); m.addFile("f", "2") }}, []string{"d/", "d/a=a", "d/sub/", "d/sub/b=b", "f=2", "l->d"}},
		"nothing at all":    {[]func(*maker){below, func(*maker) {}}, []string{"d/", "d/a=a", "d/sub/", "d/sub/b=b", "f=f", "l->d"}},
		"many opaque": {[]func(*maker){below, func(m *maker) {
			for range 100 {
				m.addFile("d/.wh..wh..opq", "")
				m.addFile("d/.wh.new", "")
			}
			m.addFile("d/new", "n")
		}}, []string{"d/", "d/new=n", "f=f", "l->d"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for i, pack := range []func(testing.TB, []byte) []byte{func(_ testing.TB, b []byte) []byte { return b }, compressGzip, compressZstd} {
				h, a := newHub(t), newArena(t)
				a.store.privileged = os.Geteuid() == 0 && i != 1
				var layers [][]byte
				for _, f := range c.layers {
					layers = append(layers, pack(t, tarOf(t, f)))
				}
				img, err := a.pull(t, h.push(imageOf(t, layers...), "x:1"))
				if err != nil {
					t.Fatal(err)
				}
				a.checkFiles(t, img, c.want...)
				a.checkPlaces(t, img.Digest)
			}
		})
	}
}

// hostileLayers returns images with malicious layers. Each follows a layer with
// links of all kinds. No layer may touch files outside of the image.
func hostileLayers() []hostile {
	own := []hostile{
		{name: "whiteout through a link", want: refused, errorText: "links are not followed", make: func(m *maker, _ string) []byte { m.addFile("abs/.wh.passwd", ""); return nil }},
		{name: "whiteout through a relative link", want: refused, errorText: "links are not followed", make: func(m *maker, _ string) []byte { m.addFile("rel/.wh.secret", ""); return nil }},
		{name: "opaque link", want: refused, errorText: "links are not followed", make: func(m *maker, _ string) []byte { m.addFile("abs/.wh..wh..opq", ""); return nil }},
		{name: "whiteout of the folder above", want: refused, errorText: "of nothing", make: func(m *maker, _ string) []byte { m.addFile("etc/.wh...", ""); return nil }},
		{name: "whiteout of this folder", want: refused, errorText: "of nothing", make: func(m *maker, _ string) []byte { m.addFile("etc/.wh..", ""); return nil }},
		{name: "whiteout of no name", want: refused, errorText: "of nothing", make: func(m *maker, _ string) []byte { m.addFile("etc/.wh.", ""); return nil }},
		{name: "whiteout with dots", want: refused, errorText: `".."`, make: func(m *maker, _ string) []byte { m.addFile("etc/../../.wh.secret", ""); return nil }},
		{name: "whiteout of a link", want: confined, make: func(m *maker, _ string) []byte { m.addFile(".wh.abs", ""); m.addFile(".wh.rel", ""); return nil }},
		{name: "write through a link", want: confined, make: func(m *maker, _ string) []byte {
			m.addFile("abs/secret", "x")
			m.addFile("rel/inner/file", "y")
			return nil
		}},
		{name: "folder through a link", want: confined, make: func(m *maker, _ string) []byte {
			m.addEntry(tar.Header{Name: "abs/", Typeflag: tar.TypeDir, Mode: 0o777}, "")
			m.addEntry(tar.Header{Name: "rel/inner", Typeflag: tar.TypeDir, Mode: 0o777}, "")
			return nil
		}},
		{name: "hard link through a link", want: refused, errorText: "not in the archive", make: func(m *maker, _ string) []byte { m.addHardLink("h", "abs/secret"); return nil }},
		{name: "hard link to a link", want: confined, make: func(m *maker, _ string) []byte { m.addHardLink("h", "tosecret"); m.addFile("h", "x"); return nil }},
		{name: "loop of links", want: refused, errorText: "too many symbolic links", make: func(m *maker, _ string) []byte {
			m.addLink("p", "q")
			m.addLink("q", "p")
			m.addFile("p/x", "")
			return nil
		}},
		{name: "long way", want: refused, errorText: "deep", make: func(m *maker, _ string) []byte {
			m.addDir("a")
			m.addLink("w", strings.Repeat("a/../", 700)+"a")
			m.addLink("w2", strings.Repeat("w/../", 500)+"w")
			m.addFile("w2/x", "")
			return nil
		}},
		{name: "deep by links", want: refused, errorText: "deep", make: func(m *maker, _ string) []byte {
			m.addLink("k", strings.Repeat("d/", 120))
			m.addFile("k/"+strings.Repeat("e/", 100)+"x", "")
			return nil
		}},
		{name: "name with a newline", want: confined, make: func(m *maker, _ string) []byte { m.addFile("a\nb\x1b[31m", "x"); return nil }},
		{name: "whiteout with a newline", want: refused, errorText: "links are not followed", make: func(m *maker, _ string) []byte { m.addFile("abs/\n\x1b/.wh.x", ""); return nil }},
		{name: "device over a file", want: confined, make: func(m *maker, _ string) []byte {
			m.addEntry(tar.Header{Name: "sda", Typeflag: tar.TypeBlock, Devmajor: 8}, "")
			return nil
		}},
	}
	// Add the archives that are hostile to an import, except for those with
	// features that are legal in layers.
	for _, h := range corpus() {
		for _, allowed := range []string{"whiteout", "not empty", "link", "end mark", "cut short", "nothing in it", "nothing", "behind", "images"} {
			if strings.Contains(h.errorText, allowed) || h.name == "nothing" {
				h.want = ""
			}
		}
		own = append(own, h)
	}
	return own
}

func TestHostileLayersCannotEscape(t *testing.T) {
	t.Parallel()
	for _, c := range hostileLayers() {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for _, privileged := range []bool{true, false} {
				if privileged && os.Geteuid() != 0 {
					continue
				}
				h, a := newHub(t), newArena(t)
				a.store.privileged = privileged
				first := tarOf(t, func(m *maker) {
					m.addDir("usr")
					m.addLink("abs", a.canary+"/dir")
					m.addLink("rel", climbTo(a.canary+"/dir"))
					m.addLink("tosecret", a.canary+"/secret")
				})
				img, err := a.pull(t, h.push(imageOf(t, first, c.bytes(t, a.canary)), "x:1"))
				switch {
				case c.want == refused && err == nil:
					t.Errorf("privileged %t: not refused", privileged)
				case c.want == refused:
					a.checkRefused(t, err, brig.InvalidArgument, "ref", c.errorText)
					if !strings.Contains(brig.AsError(err).Message, "layer 2 of 2") && !strings.Contains(brig.AsError(err).Message, "etc/passwd") {
						t.Errorf("it does not say where: %v", err)
					}
				case err == nil:
					a.checkPlaces(t, img.Digest)
				case c.want == confined:
					t.Errorf("privileged %t: %v", privileged, err)
				}
				if err := a.checkUnchanged(); err != nil {
					t.Errorf("privileged %t: %v", privileged, err)
				}
			}
		})
	}
}

// TestLayersShareLimits checks that limits apply to the whole image, regardless
// of its number of layers.
func TestLayersShareLimits(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	var large, many [][]byte
	for i := range 6 {
		large = append(large, tarOf(t, func(m *maker) { m.addFile(fmt.Sprint("f", i), strings.Repeat(fmt.Sprint(i), 1<<20)) }))
		many = append(many, tarOf(t, func(m *maker) {
			for j := range 100 {
				m.addFile(fmt.Sprint(i, "-", j), "")
			}
		}))
	}
	_, err := a.pull(t, h.push(imageOf(t, large...), "large:1"))
	a.checkRefused(t, err, brig.InvalidArgument, "ref", "the limit")
	_, err = a.pull(t, h.push(imageOf(t, many...), "many:1"))
	a.checkRefused(t, err, brig.InvalidArgument, "ref", "entries, the limit")
	bomb := compressGzip(t, tarOf(t, func(m *maker) { m.addFile("b", strings.Repeat("\x00", 3<<20)) }))
	_, err = a.pull(t, h.push(imageOf(t, bomb), "bomb:1"))
	a.checkRefused(t, err, brig.InvalidArgument, "ref", "times its own size")
	var wide [][]byte
	for i := range 501 {
		wide = append(wide, tarOf(t, func(m *maker) { m.addFile(fmt.Sprint(i), "") }))
	}
	_, err = a.pull(t, h.push(imageOf(t, wide...), "wide:1"))
	a.checkRefused(t, err, brig.InvalidArgument, "ref", "501 layers, the most is 500")
}

// TestConfigValuesAreLimited checks the limits on values from a configuration.
func TestConfigValuesAreLimited(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	c := v1.Config{
		Labels: map[string]string{}, User: "\x1b[31mnobody", WorkingDir: "../../etc",
		Env: []string{"=x", "NOEQ", "LD_LIBRARY_PATH=/x", "LD_AUDIT=/x", "BRIG_X=1", "E2B_KEY=1", "GLIBC_TUNABLES=x", "NUL=a\x00b", "PATH=/opt/bin:/bin", "BIG=" + strings.Repeat("x", 70<<10)},
	}
	for i := range 10_000 {
		c.Labels[fmt.Sprintf("label-%05d", i)] = "v"
	}
	for range 1000 {
		c.Cmd = append(c.Cmd, "x")
	}
	img, err := a.pull(t, h.push(imageWithConfig(t, c, smallArchive(t)), "x:1"))
	if err != nil {
		t.Fatal(err)
	}
	got := img.Config
	if len(got.Labels) != maxConfigLabels || len(got.Env) != 1 || got.Env["PATH"] == "" || got.User != "user" || got.WorkingDir != "" || got.Command != nil {
		t.Errorf("%+v", got)
	}
	notes := strings.Join(img.Notes, "|")
	for _, want := range []string{"9900 labels", "LD_LIBRARY_PATH, LD_AUDIT, BRIG_X, E2B_KEY, GLIBC_TUNABLES", "4 variables", "user 1000", "working directory", "command"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note of %q: %q", want, img.Notes)
		}
	}
	if strings.ContainsAny(notes, "\x1b\x00\n") {
		t.Errorf("notes unfit for a terminal: %q", notes)
	}
	again, err := a.store.Resolve(t.Context(), img.Digest)
	if err != nil || len(again.Config.Labels) != maxConfigLabels || !slices.Equal(again.Notes, img.Notes) {
		t.Errorf("%+v, %v", again, err)
	}
	huge := v1.Config{Cmd: []string{strings.Repeat("x", maxConfig)}}
	_, err = a.pull(t, h.push(imageWithConfig(t, huge, smallArchive(t)), "y:1"))
	a.checkRefused(t, err, brig.InvalidArgument, "ref", "configuration is larger")
}

// TestLayerWithWrongDiffIDIsRefused checks that a layer is refused if its content differs from
// the configuration, even if the manifest lists it.
func TestLayerWithWrongDiffIDIsRefused(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	l := layerOf(t, compressGzip(t, smallArchive(t))).(fixedLayer)
	l.diff.Hex = strings.Repeat("0", 64)
	img := imageOf(t)
	img, err := appendLayer(img, l)
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.pull(t, h.push(img, "x:1"))
	a.checkRefused(t, err, brig.InvalidArgument, "ref", "its content has the digest")
}
