package image

import (
	"archive/tar"
	"strings"
)

// corpusPlaces returns archives that contain a link or another unsuitable type at a
// path that is written to or mounted on after unpacking.
func corpusPlaces() []hostile {
	var all []hostile
	for _, place := range []string{"etc", "proc", "dev", "sys", "tmp", "run", "workspace", "home", "home/user"} {
		all = append(all, hostile{
			name: place + " is a link", want: confined, escapes: true,
			make: func(m *maker, c string) []byte {
				if place == "home/user" {
					m.addDir("home")
				}
				m.addLink(place, c+"/dir")
				return nil
			},
		})
	}
	return append(all, []hostile{
		{name: "etc is a link to the root", want: confined, make: func(m *maker, _ string) []byte {
			m.addLink("etc", "/")
			return nil
		}},
		{name: "tmp is a relative link", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("tmp", climbTo(c+"/dir"))
			return nil
		}},
		{name: "run is a loop of links", want: confined, make: func(m *maker, _ string) []byte {
			m.addLink("run", "var")
			m.addLink("var", "run")
			return nil
		}},
		{name: "workspace is a file", want: confined, make: func(m *maker, _ string) []byte {
			m.addFile("workspace", "x")
			return nil
		}},
		{name: "passwd is a link", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.addDir("etc")
			m.addLink("etc/passwd", c+"/secret")
			return nil
		}},
		{name: "group is a relative link", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.addDir("etc")
			m.addLink("etc/group", climbTo(c+"/dir/group"))
			return nil
		}},
		{name: "passwd is a directory", want: refused, errorText: "etc/passwd", make: func(m *maker, _ string) []byte {
			m.addDir("etc/passwd")
			return nil
		}},
		{name: "passwd is too large", want: refused, errorText: "etc/passwd", make: func(m *maker, _ string) []byte {
			m.addFile("etc/passwd", strings.Repeat("a:x:1:1:::\n", 100_000))
			return nil
		}},
		{name: "passwd is a device", want: confined, make: func(m *maker, _ string) []byte {
			m.addDir("etc")
			m.addEntry(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}, "")
			return nil
		}},
		{name: "null and console are links", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.addDir("dev")
			m.addLink("dev/null", c+"/dir/null")
			m.addLink("dev/console", c+"/secret")
			m.addLink("dev/pts", c+"/dir")
			return nil
		}},
		{name: "proc is full of links", want: confined, make: func(m *maker, c string) []byte {
			m.addDir("proc/self")
			m.addLink("proc/self/exe", c)
			m.addLink("proc/sys", c)
			return nil
		}},
	}...)
}
