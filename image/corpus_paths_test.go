package image

import (
	"archive/tar"
	"strings"
)

// corpusPaths returns archives whose names and links lead out of the image.
func corpusPaths() []hostile {
	return []hostile{
		{name: "dotdot file", want: refused, errorText: `".."`, escapes: true, make: func(m *maker, c string) []byte {
			m.file(up(c+"/secret"), "pwned")
			return nil
		}},
		{name: "dotdot in the middle", want: refused, errorText: `".."`, escapes: true, make: func(m *maker, c string) []byte {
			m.dir("a")
			m.file("a/"+up(c+"/pwned"), "pwned")
			return nil
		}},
		{name: "dotdot that stays inside", want: refused, errorText: `".."`, make: func(m *maker, _ string) []byte {
			m.file("a/../b", "x")
			return nil
		}},
		{name: "dotdot directory", want: refused, errorText: `".."`, escapes: true, make: func(m *maker, c string) []byte {
			m.dir(up(c + "/pwned"))
			return nil
		}},
		{name: "dotdot by PAX path", want: refused, errorText: `".."`, escapes: true, make: func(m *maker, c string) []byte {
			m.pax("path", up(c+"/pwned"))
			m.block('0', "innocent", octal(1), "x")
			return nil
		}},
		{name: "dotdot by GNU long name", want: refused, errorText: `".."`, escapes: true, make: func(m *maker, c string) []byte {
			m.block('L', "././@LongLink", octal(len(up(c))+7), up(c)+"/pwned\x00")
			m.block('0', "innocent", octal(1), "x")
			return nil
		}},
		{name: "absolute file", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.file(c+"/secret", "pwned")
			return nil
		}},
		{name: "absolute directory", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.put(tar.Header{Name: c + "/dir", Typeflag: tar.TypeDir, Mode: 0o777}, "")
			return nil
		}},
		{name: "absolute link", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.link(c+"/pwned", "/etc/passwd")
			return nil
		}},
		{name: "many slashes and dots", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.file("//./."+c+"//./pwned", "pwned")
			m.file("./x//./y", "x")
			return nil
		}},
		{name: "write through absolute link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.link("a", c)
			m.file("a/pwned", "pwned")
			return nil
		}},
		{name: "write through relative link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.link("a", up(c))
			m.file("a/pwned", "pwned")
			return nil
		}},
		{name: "write through a link inside", want: refused, errorText: "symbolic link", make: func(m *maker, _ string) []byte {
			m.dir("usr/lib")
			m.link("lib", "usr/lib")
			m.file("lib/x", "x")
			return nil
		}},
		{name: "write through a link to itself", want: refused, errorText: "symbolic link", make: func(m *maker, _ string) []byte {
			m.link("self", ".")
			m.file("self/self/self/x", "x")
			return nil
		}},
		{name: "write through a chain of links", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.link("b", c)
			m.link("a", "b")
			m.file("a/dir/pwned", "pwned")
			return nil
		}},
		{name: "write through a link to the root", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.link("r", "/")
			m.file("r"+c+"/pwned", "pwned")
			return nil
		}},
		{name: "make a directory through a link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.link("a", c)
			m.dir("a/pwned")
			return nil
		}},
		{name: "make a link through a link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.link("a", c)
			m.link("a/pwned", "/")
			return nil
		}},
		{name: "remove through a link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.link("a", c)
			m.link("a/secret", "/dev/null")
			return nil
		}},
		{name: "overwrite a link to a file", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.link("a", c+"/secret")
			m.file("a", "pwned")
			return nil
		}},
		{name: "overwrite a dangling link", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.link("a", c+"/pwned")
			m.file("a", "pwned")
			return nil
		}},
		{name: "change the mode through a link", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.link("a", c+"/dir")
			m.put(tar.Header{Name: "a", Typeflag: tar.TypeDir, Mode: 0o777}, "")
			return nil
		}},
		{name: "directory over a link then write", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.link("a", c)
			m.dir("a/")
			m.file("a/pwned", "x") // in the directory that replaced the link
			return nil
		}},
		{name: "hard link to dotdot", want: refused, errorText: "hard link", escapes: true, make: func(m *maker, c string) []byte {
			m.hard("a", up(c+"/secret"))
			return nil
		}},
		{name: "hard link to absolute", want: refused, errorText: "hard link", escapes: true, make: func(m *maker, c string) []byte {
			m.hard("a", c+"/secret")
			return nil
		}},
		{name: "hard link through a link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.link("d", c)
			m.hard("a", "d/secret")
			return nil
		}},
		{name: "hard link to a link then write", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.link("l", c+"/secret")
			m.hard("a", "l")
			m.file("a", "pwned")
			return nil
		}},
		{name: "hard link to nothing", want: refused, errorText: "not in the archive before it", make: func(m *maker, _ string) []byte {
			m.hard("a", "nothing")
			m.file("nothing", "x")
			return nil
		}},
		{name: "hard link to itself", want: refused, errorText: "itself", make: func(m *maker, _ string) []byte {
			m.file("a", "x")
			m.hard("a", "./a")
			return nil
		}},
		{name: "hard link to a directory", want: refused, errorText: "not a file", make: func(m *maker, _ string) []byte {
			m.dir("d")
			m.hard("a", "d")
			return nil
		}},
		{name: "hard link to the root", want: refused, errorText: "not a file", make: func(m *maker, _ string) []byte {
			m.hard("a", "/")
			return nil
		}},
		{name: "directory becomes a link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.dir("a")
			m.link("a", c)
			m.file("a/pwned", "pwned")
			return nil
		}},
		{name: "directory in use becomes a link", want: refused, errorText: "not empty", make: func(m *maker, c string) []byte {
			m.file("a/x", "x")
			m.link("a", c)
			m.file("a/pwned", "pwned")
			return nil
		}},
		{name: "full directory becomes a file", want: refused, errorText: "not empty", make: func(m *maker, _ string) []byte {
			m.file("a/b", "x")
			m.file("a", "x")
			return nil
		}},
		{name: "file used as a directory", want: refused, errorText: "not a directory", make: func(m *maker, _ string) []byte {
			m.file("a", "x")
			m.file("a/b", "x")
			return nil
		}},
		{name: "one name of every kind", want: confined, make: func(m *maker, c string) []byte {
			m.file("b", "b")
			m.file("a", "x")
			m.dir("a")
			m.link("a", c)
			m.hard("a", "b")
			m.put(tar.Header{Name: "a", Typeflag: tar.TypeFifo}, "")
			m.file("a", "y")
			return nil
		}},
		{name: "link without a target", want: refused, errorText: "link to", make: func(m *maker, _ string) []byte {
			m.block('2', "a", octal(0), "")
			return nil
		}},
		{name: "link with an endless target", want: refused, errorText: "longer than 4095", make: func(m *maker, _ string) []byte {
			m.link("a", strings.Repeat("x/", 3000))
			return nil
		}},
		{name: "root is a link", want: refused, errorText: "root", make: func(m *maker, c string) []byte {
			m.link("./", c)
			return nil
		}},
		{name: "root is a file", want: refused, errorText: "root", make: func(m *maker, _ string) []byte {
			m.file("", "x")
			return nil
		}},
	}
}
