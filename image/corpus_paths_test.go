package image

import (
	"archive/tar"
	"strings"
)

// corpusPaths returns archives whose names and links lead out of the image.
func corpusPaths() []hostile {
	return []hostile{
		{name: "dotdot file", want: refused, errorText: `".."`, escapes: true, make: func(m *maker, c string) []byte {
			m.addFile(climbTo(c+"/secret"), "pwned")
			return nil
		}},
		{name: "dotdot in the middle", want: refused, errorText: `".."`, escapes: true, make: func(m *maker, c string) []byte {
			m.addDir("a")
			m.addFile("a/"+climbTo(c+"/pwned"), "pwned")
			return nil
		}},
		{name: "dotdot that stays inside", want: refused, errorText: `".."`, make: func(m *maker, _ string) []byte {
			m.addFile("a/../b", "x")
			return nil
		}},
		{name: "dotdot directory", want: refused, errorText: `".."`, escapes: true, make: func(m *maker, c string) []byte {
			m.addDir(climbTo(c + "/pwned"))
			return nil
		}},
		{name: "dotdot by PAX path", want: refused, errorText: `".."`, escapes: true, make: func(m *maker, c string) []byte {
			m.addPAX("path", climbTo(c+"/pwned"))
			m.addBlock('0', "innocent", octal(1), "x")
			return nil
		}},
		{name: "dotdot by GNU long name", want: refused, errorText: `".."`, escapes: true, make: func(m *maker, c string) []byte {
			m.addBlock('L', "././@LongLink", octal(len(climbTo(c))+7), climbTo(c)+"/pwned\x00")
			m.addBlock('0', "innocent", octal(1), "x")
			return nil
		}},
		{name: "absolute file", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.addFile(c+"/secret", "pwned")
			return nil
		}},
		{name: "absolute directory", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.addEntry(tar.Header{Name: c + "/dir", Typeflag: tar.TypeDir, Mode: 0o777}, "")
			return nil
		}},
		{name: "absolute link", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.addLink(c+"/pwned", "/etc/passwd")
			return nil
		}},
		{name: "many slashes and dots", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.addFile("//./."+c+"//./pwned", "pwned")
			m.addFile("./x//./y", "x")
			return nil
		}},
		{name: "write through absolute link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("a", c)
			m.addFile("a/pwned", "pwned")
			return nil
		}},
		{name: "write through relative link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("a", climbTo(c))
			m.addFile("a/pwned", "pwned")
			return nil
		}},
		{name: "write through a link inside", want: refused, errorText: "symbolic link", make: func(m *maker, _ string) []byte {
			m.addDir("usr/lib")
			m.addLink("lib", "usr/lib")
			m.addFile("lib/x", "x")
			return nil
		}},
		{name: "write through a link to itself", want: refused, errorText: "symbolic link", make: func(m *maker, _ string) []byte {
			m.addLink("self", ".")
			m.addFile("self/self/self/x", "x")
			return nil
		}},
		{name: "write through a chain of links", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("b", c)
			m.addLink("a", "b")
			m.addFile("a/dir/pwned", "pwned")
			return nil
		}},
		{name: "write through a link to the root", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("r", "/")
			m.addFile("r"+c+"/pwned", "pwned")
			return nil
		}},
		{name: "make a directory through a link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("a", c)
			m.addDir("a/pwned")
			return nil
		}},
		{name: "make a link through a link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("a", c)
			m.addLink("a/pwned", "/")
			return nil
		}},
		{name: "remove through a link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("a", c)
			m.addLink("a/secret", "/dev/null")
			return nil
		}},
		{name: "overwrite a link to a file", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("a", c+"/secret")
			m.addFile("a", "pwned")
			return nil
		}},
		{name: "overwrite a dangling link", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("a", c+"/pwned")
			m.addFile("a", "pwned")
			return nil
		}},
		{name: "change the mode through a link", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("a", c+"/dir")
			m.addEntry(tar.Header{Name: "a", Typeflag: tar.TypeDir, Mode: 0o777}, "")
			return nil
		}},
		{name: "directory over a link then write", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("a", c)
			m.addDir("a/")
			m.addFile("a/pwned", "x") // in the directory that replaced the link
			return nil
		}},
		{name: "hard link to dotdot", want: refused, errorText: "hard link", escapes: true, make: func(m *maker, c string) []byte {
			m.addHardLink("a", climbTo(c+"/secret"))
			return nil
		}},
		{name: "hard link to absolute", want: refused, errorText: "hard link", escapes: true, make: func(m *maker, c string) []byte {
			m.addHardLink("a", c+"/secret")
			return nil
		}},
		{name: "hard link through a link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("d", c)
			m.addHardLink("a", "d/secret")
			return nil
		}},
		{name: "hard link to a link then write", want: confined, escapes: true, make: func(m *maker, c string) []byte {
			m.addLink("l", c+"/secret")
			m.addHardLink("a", "l")
			m.addFile("a", "pwned")
			return nil
		}},
		{name: "hard link to nothing", want: refused, errorText: "not in the archive before it", make: func(m *maker, _ string) []byte {
			m.addHardLink("a", "nothing")
			m.addFile("nothing", "x")
			return nil
		}},
		{name: "hard link to itself", want: refused, errorText: "itself", make: func(m *maker, _ string) []byte {
			m.addFile("a", "x")
			m.addHardLink("a", "./a")
			return nil
		}},
		{name: "hard link to a directory", want: refused, errorText: "not a file", make: func(m *maker, _ string) []byte {
			m.addDir("d")
			m.addHardLink("a", "d")
			return nil
		}},
		{name: "hard link to the root", want: refused, errorText: "not a file", make: func(m *maker, _ string) []byte {
			m.addHardLink("a", "/")
			return nil
		}},
		{name: "directory becomes a link", want: refused, errorText: "symbolic link", escapes: true, make: func(m *maker, c string) []byte {
			m.addDir("a")
			m.addLink("a", c)
			m.addFile("a/pwned", "pwned")
			return nil
		}},
		{name: "directory in use becomes a link", want: refused, errorText: "not empty", make: func(m *maker, c string) []byte {
			m.addFile("a/x", "x")
			m.addLink("a", c)
			m.addFile("a/pwned", "pwned")
			return nil
		}},
		{name: "full directory becomes a file", want: refused, errorText: "not empty", make: func(m *maker, _ string) []byte {
			m.addFile("a/b", "x")
			m.addFile("a", "x")
			return nil
		}},
		{name: "file used as a directory", want: refused, errorText: "not a directory", make: func(m *maker, _ string) []byte {
			m.addFile("a", "x")
			m.addFile("a/b", "x")
			return nil
		}},
		{name: "one name of every kind", want: confined, make: func(m *maker, c string) []byte {
			m.addFile("b", "b")
			m.addFile("a", "x")
			m.addDir("a")
			m.addLink("a", c)
			m.addHardLink("a", "b")
			m.addEntry(tar.Header{Name: "a", Typeflag: tar.TypeFifo}, "")
			m.addFile("a", "y")
			return nil
		}},
		{name: "link without a target", want: refused, errorText: "link to", make: func(m *maker, _ string) []byte {
			m.addBlock('2', "a", octal(0), "")
			return nil
		}},
		{name: "link with an endless target", want: refused, errorText: "longer than 4095", make: func(m *maker, _ string) []byte {
			m.addLink("a", strings.Repeat("x/", 3000))
			return nil
		}},
		{name: "root is a link", want: refused, errorText: "root", make: func(m *maker, c string) []byte {
			m.addLink("./", c)
			return nil
		}},
		{name: "root is a file", want: refused, errorText: "root", make: func(m *maker, _ string) []byte {
			m.addFile("", "x")
			return nil
		}},
	}
}
