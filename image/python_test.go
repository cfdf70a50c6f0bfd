package image

import (
	"os"
	"path/filepath"
	"testing"
)

// TestImageGetsPythonAndPip checks that an image with only python3 gets python and a
// pip that installs beside the distribution's packages. An existing python and
// pip.conf persist.
func TestImageGetsPythonAndPip(t *testing.T) {
	t.Parallel()
	const managed = "usr/lib/python3.11/EXTERNALLY-MANAGED"
	for name, c := range map[string]struct {
		files map[string]string
		links map[string]string // expected links, "" for none
		pip   string
	}{
		"alone":        {map[string]string{"usr/bin/python3": "#!", managed: ""}, map[string]string{"usr/bin/python": "python3"}, pipConfig},
		"local":        {map[string]string{"usr/local/bin/python3": "#!"}, map[string]string{"usr/local/bin/python": "python3", "usr/bin/python": ""}, ""},
		"beside":       {map[string]string{"usr/local/bin/python3": "#!", "usr/bin/python": "#!own"}, map[string]string{"usr/local/bin/python": "", "usr/bin/python": "own"}, ""},
		"its settings": {map[string]string{"usr/bin/python3": "#!", managed: "", "etc/pip.conf": "[own]\n"}, map[string]string{"usr/bin/python": "python3"}, "[own]\n"},
		"none":         {map[string]string{"usr/bin/perl": "#!"}, map[string]string{"usr/bin/python": ""}, ""},
		"hostile":      {map[string]string{"usr/bin/python3": "#!", managed: ""}, map[string]string{"usr/bin/python": "python3"}, pipConfig},
	} {
		m := newMaker(t)
		for file, content := range c.files {
			m.addFile(file, content)
		}
		if name == "hostile" {
			m.addLink("usr/local", "/etc")
			m.addLink("bin", "/../../outside")
		}
		a := newArena(t)
		img, err := a.importBytes(t, m.bytes())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r, err := a.store.Root(img.Digest)
		if err != nil {
			t.Fatal(err)
		}
		for link, want := range c.links {
			fi, err := os.Lstat(filepath.Join(r.Dir, link))
			to, _ := os.Readlink(filepath.Join(r.Dir, link))
			if want == "" && err == nil || want == "own" && (err != nil || !fi.Mode().IsRegular()) || want == "python3" && to != want {
				t.Errorf("%s: %s is %v to %q, %v", name, link, fi, to, err)
			}
		}
		if b, err := os.ReadFile(filepath.Join(r.Dir, "etc/pip.conf")); string(b) != c.pip || c.pip == "" && !os.IsNotExist(err) {
			t.Errorf("%s: pip.conf is %q, %v", name, b, err)
		}
		if err := a.checkUnchanged(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
