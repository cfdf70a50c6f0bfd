package image

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestConfigIsResolvedInImage checks that users and directories of a configuration are
// resolved with the image's own files.
func TestConfigIsResolvedInImage(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	layer := tarOf(t, func(m *maker) {
		m.addDir("usr")
		m.addDir("etc")
		m.addDir("srv")
		m.addDir("srv/app")
		m.addFile("srv/file", "")
		m.addLink("near", "srv/app")
		m.addLink("far", "/etc")
		m.addLink("out", "../../../../etc")
		m.addFile("etc/passwd", "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\nweb:x:101:102::/:/bin/sh\nzero:x:0:5::/:/bin/sh\n"+
			"agent:x:64999:1::/:/bin/sh\nhigh:x:70000:1::/:/bin/sh\nodd:x:-1:1::/:/bin/sh\nshort:x\n::7:7::\nhuge:x:99999999999999999999:1::/:\n5:x:300:300::/:\n")
		m.addFile("etc/group", "root:x:0:\nweb:x:102:\nwww:x:33:\nagent:x:64999:\n")
	})
	for i, c := range []struct{ user, dir, is, account, note string }{
		{"", "", "", "", ""},
		{"", "/srv/app", "", "", ""},
		{"", "/srv/app/", "", "", ""},
		{"", "/", "", "", ""},
		{"", "/near", "", "", ""},
		{"", "/srv/file", "", "", "working directory"},
		{"", "/nowhere", "", "", "working directory"},
		{"", "/far", "", "", "working directory"},
		{"", "/out", "", "", "working directory"},
		{"", "/srv\n/x", "", "", "working directory"},
		{"root", "", "root", "", ""},
		{"0:0", "", "root", "", ""},
		{"zero", "", "root", "", ""},
		{"node", "", "user", "", ""},
		{"1000", "", "user", "", ""},
		{"web", "", "user", "101:102", "entrypoint"},
		{"web:www", "", "user", "101:33", "entrypoint"},
		{"101", "", "user", "101:102", "entrypoint"},
		{"65532", "", "user", "65532:65532", "entrypoint"},
		{"65532:0", "", "user", "65532:0", "entrypoint"},
		{"5", "", "user", "300:300", "entrypoint"}, // a name takes precedence, as in other tools
		{"nobody-here", "", "user", "", "is not used"},
		{"web:nothing", "", "user", "", "is not used"},
		{"web:agent", "", "user", "", "is not used"},
		{"agent", "", "user", "", "is not used"},
		{"64999", "", "user", "", "is not used"},
		{"high", "", "user", "", "is not used"},
		{"65535", "", "user", "65535:65535", "entrypoint"},
		{"65536", "", "user", "", "is not used"},
		{"-1", "", "user", "", "is not used"},
		{"odd", "", "user", "", "is not used"},
		{"short", "", "user", "", "is not used"},
		{"huge", "", "user", "", "is not used"},
		{":", "", "user", "", "is not used"},
		{"we\nb", "", "user", "", "is not used"},
		{"web\x00", "", "user", "", "is not used"},
		{strings.Repeat("x", 1<<20), "", "user", "", "is not used"},
	} {
		img, err := a.pull(t, h.push(imageWithConfig(t, v1.Config{User: c.user, WorkingDir: c.dir}, layer), fmt.Sprintf("x:%d", i)))
		if err != nil {
			t.Errorf("%.20q %q: %v", c.user, c.dir, err)
			continue
		}
		dir, notes := strings.TrimSuffix(c.dir, "/"), strings.Join(img.Notes, "|")
		if c.dir == "/" {
			dir = "/"
		}
		if strings.Contains(c.note, "directory") {
			dir = ""
		}
		if got := img.Config; got.User != c.is || got.Account != c.account || got.WorkingDir != dir {
			t.Errorf("%.20q %q: %+v", c.user, c.dir, got)
		}
		if (c.note == "") != (notes == "") || !strings.Contains(notes, c.note) || len(notes) > 1000 || strings.ContainsAny(notes, "\n\x00") {
			t.Errorf("%.20q %q: notes %.200q", c.user, c.dir, notes)
		}
	}
}
