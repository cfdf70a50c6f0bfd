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
					m.dir("home")
				}
				m.link(place, c+"/dir")
				return nil
			},
		})
	}
	return append(all, []hostile{
		{name: "etc is a link to the root", want: confined, make: func(m *maker, _ string) []byte {
			m.link("etc", "/")
			return nil
		}},
		{name: "tmp is a relative link", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.link("tmp", up(c+"/dir"))
			return nil
		}},
		{name: "run is a loop of links", want: confined, make: func(m *maker, _ string) []byte {
			m.link("run", "var")
			m.link("var", "run")
			return nil
		}},
		{name: "workspace is a file", want: confined, make: func(m *maker, _ string) []byte {
			m.file("workspace", "x")
			return nil
		}},
		{name: "passwd is a link", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.dir("etc")
			m.link("etc/passwd", c+"/secret")
			return nil
		}},
		{name: "group is a relative link", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.dir("etc")
			m.link("etc/group", up(c+"/dir/group"))
			return nil
		}},
		{name: "passwd is a directory", want: refused, errorText: "etc/passwd", make: func(m *maker, _ string) []byte {
			m.dir("etc/passwd")
			return nil
		}},
		{name: "passwd is too large", want: refused, errorText: "etc/passwd", make: func(m *maker, _ string) []byte {
			m.file("etc/passwd", strings.Repeat("a:x:1:1:::\n", 100_000))
			return nil
		}},
		{name: "passwd is a device", want: confined, make: func(m *maker, _ string) []byte {
			m.dir("etc")
			m.put(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}, "")
			return nil
		}},
		{name: "null and console are links", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.dir("dev")
			m.link("dev/null", c+"/dir/null")
			m.link("dev/console", c+"/secret")
			m.link("dev/pts", c+"/dir")
			return nil
		}},
		{name: "proc is full of links", want: confined, make: func(m *maker, c string) []byte {
			m.dir("proc/self")
			m.link("proc/self/exe", c)
			m.link("proc/sys", c)
			return nil
		}},
	}...)
}
