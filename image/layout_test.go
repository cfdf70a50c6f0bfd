package image

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/brig-run/brig"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func appendLayer(img v1.Image, l v1.Layer) (v1.Image, error) {
	return mutate.Append(img, mutate.Addendum{Layer: l})
}

// folderTar makes an archive of a directory's files.
func folderTar(t testing.TB, dir string) []byte {
	return tarOf(t, func(m *maker) {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(dir, p)
			if err != nil || d.IsDir() {
				if rel != "." {
					m.addDir(rel)
				}
				return err
			}
			b, err := os.ReadFile(p)
			m.addFile(rel, string(b))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func layoutTar(t testing.TB, images ...v1.Image) []byte {
	t.Helper()
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for i, img := range images {
		if err := p.AppendImage(img, layout.WithAnnotations(map[string]string{refName: []string{"one", "two", "three"}[i]})); err != nil {
			t.Fatal(err)
		}
	}
	return folderTar(t, dir)
}

func dockerTar(t testing.TB, images map[string]v1.Image) []byte {
	t.Helper()
	all := map[name.Reference]v1.Image{}
	for tag, img := range images {
		all[name.MustParseReference("example.com/x").Context().Tag(tag)] = img
	}
	var b bytes.Buffer
	if err := tarball.MultiRefWrite(all, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestImportKeepsImageIdentity checks that the source of an image does not change
// its identity.
func TestImportKeepsImageIdentity(t *testing.T) {
	t.Parallel()
	img := imageWithConfig(t, v1.Config{Env: []string{"A=1"}},
		compressGzip(t, tarOf(t, func(m *maker) { m.addFile("usr/a", "1"); m.addFile("usr/b", "1") })),
		compressGzip(t, tarOf(t, func(m *maker) { m.addFile("usr/.wh.a", "") })))
	id, _ := img.ConfigName()
	manifest, _ := img.Digest()
	for source, b := range map[string][]byte{
		"oci-layout":     layoutTar(t, img),
		"docker-archive": dockerTar(t, map[string]v1.Image{"1": img}),
	} {
		for _, pack := range []func(testing.TB, []byte) []byte{compressGzip, compressZstd} {
			a := newArena(t)
			got, err := a.importBytes(t, pack(t, b))
			if err != nil {
				t.Fatalf("%s: %v", source, err)
			}
			if got.Source != source || got.Digest != id.String() || got.Names[0] != "test" || got.Config.Env["A"] != "1" {
				t.Errorf("%s: %+v", source, got)
			}
			if source == "oci-layout" && got.Manifest != manifest.String() {
				t.Errorf("manifest %s", got.Manifest)
			}
			a.checkFiles(t, got, "usr/", "usr/b=1")
			h := newHub(t)
			ref := h.push(img, "x:1")
			if got, err = a.pull(t, ref); err != nil || len(got.Names) != 2 {
				t.Errorf("%s: %+v, %v", source, got, err)
			}
		}
	}
}

func TestImportRejectsSeveralImages(t *testing.T) {
	t.Parallel()
	one, two := imageOf(t, smallArchive(t)), imageOf(t, tarOf(t, func(m *maker) { m.addFile("x", "") }))
	a := newArena(t)
	_, err := a.importBytes(t, layoutTar(t, one, two))
	a.checkRefused(t, err, brig.InvalidArgument, "archive", `2 images in it: "one", "two"`)
	_, err = a.importBytes(t, dockerTar(t, map[string]v1.Image{"1": one, "2": two}))
	a.checkRefused(t, err, brig.InvalidArgument, "archive", "2 images in it")
	// The same image under two names is one image.
	if _, err = a.importBytes(t, layoutTar(t, one, one)); err != nil {
		t.Error(err)
	}
}

// TestImageArchivePathsCannotEscape checks that no path in an archive of images can lead outside the
// archive.
func TestImageArchivePathsCannotEscape(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	manifest := func(config, layer string) string {
		return `[{"Config":"` + config + `","Layers":["` + layer + `"]}]`
	}
	secret := climbTo(a.canary + "/secret")
	for says, f := range map[string]func(m *maker){
		`".."`:      func(m *maker) { m.addFile("manifest.json", manifest(secret, "l")) },
		"is not in": func(m *maker) { m.addFile("manifest.json", manifest("c.json", "l")); m.addLink("c.json", secret) },
		"is not a file": func(m *maker) {
			m.addFile("manifest.json", manifest("c", "l"))
			m.addDir("c")
		},
		"its manifest.json is damaged": func(m *maker) { m.addFile("manifest.json", "nonsense") },
		"its index.json is damaged":    func(m *maker) { m.addFile("oci-layout", "{}"); m.addFile("index.json", "[") },
		"no image in it":               func(m *maker) { m.addFile("oci-layout", "{}"); m.addFile("index.json", "{}") },
	} {
		_, err := a.importBytes(t, tarOf(t, f))
		a.checkRefused(t, err, brig.InvalidArgument, "archive", says)
	}
	// Layers from an archive get the same checks as layers from a registry.
	b := layoutTar(t, imageOf(t, tarOf(t, func(m *maker) { m.addLink("a", a.canary); m.addFile("a/.wh.secret", "") })))
	_, err := a.importBytes(t, b)
	a.checkRefused(t, err, brig.InvalidArgument, "archive", "links are not followed")
	// A blob whose content does not match its name.
	i := bytes.Index(b, []byte(`"rootfs"`))
	b[i+2] ^= 1
	_, err = a.importBytes(t, b)
	a.checkRefused(t, err, brig.InvalidArgument, "archive", "its digest is")
}
