package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// corpusContents returns archives with false sizes, bombs and forbidden contents.
func corpusContents() []hostile {
	node := func(typ byte) func(*maker, string) []byte {
		return func(m *maker, _ string) []byte {
			m.addFile("x", "x")
			m.addEntry(tar.Header{Name: "node", Typeflag: typ, Devmajor: 1, Devminor: 3}, "")
			return nil
		}
	}
	raw := func(typ byte, name, size, content string) func(*maker, string) []byte {
		return func(m *maker, _ string) []byte {
			m.addFile("before", "x")
			m.addBlock(typ, name, size, content)
			return nil
		}
	}
	plain := func(m *maker) []byte {
		m.addFile("x", "x")
		return m.bytes()
	}
	return []hostile{
		{name: "character device", want: confined, make: node(tar.TypeChar)},
		{name: "block device", want: confined, make: node(tar.TypeBlock)},
		{name: "fifo", want: confined, make: node(tar.TypeFifo)},
		{name: "set-user-ID and set-group-ID", want: confined, make: func(m *maker, _ string) []byte {
			m.addEntry(tar.Header{Name: "su", Mode: 0o6755}, "x")
			m.addEntry(tar.Header{Name: "sticky", Mode: 0o1755}, "x")
			m.addEntry(tar.Header{Name: "dir", Mode: 0o7777, Typeflag: tar.TypeDir}, "")
			return nil
		}},
		{name: "file capabilities", want: confined, make: func(m *maker, _ string) []byte {
			m.addEntry(tar.Header{Name: "ping", PAXRecords: map[string]string{
				"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20",
				"SCHILY.xattr.user.x":              "y",
			}}, "x")
			return nil
		}},
		{name: "whiteout", want: refused, errorText: "whiteout", make: func(m *maker, _ string) []byte {
			m.addFile("etc/.wh.passwd", "")
			return nil
		}},
		{name: "opaque whiteout", want: refused, errorText: "whiteout", make: func(m *maker, _ string) []byte {
			m.addFile("etc/.wh..wh..opq", "")
			return nil
		}},
		{name: "whiteout hard link", want: refused, errorText: "whiteout", make: func(m *maker, _ string) []byte {
			m.addFile("a", "")
			m.addHardLink(".wh.a", "a")
			return nil
		}},
		{name: "NUL in PAX path", want: refused, make: func(m *maker, c string) []byte {
			m.addPAX("path", "a\x00"+climbTo(c))
			m.addBlock('0', "a", octal(1), "x")
			return nil
		}},
		{name: "escape sequences in a refused name", want: refused, errorText: `\x1b`, make: func(m *maker, _ string) []byte {
			m.addFile("\x1b]0;pwned\x07\n/../x", "x")
			return nil
		}},
		{name: "escape sequences in a name", want: confined, make: func(m *maker, _ string) []byte {
			m.addFile("\x1b]0;pwned\x07\n<img onerror=x>", "x")
			m.addBlock('0', "\xff\xfe\\..\\..", octal(1), "x")
			return nil
		}},
		{name: "endless path", want: refused, errorText: "longer than 4095", make: func(m *maker, _ string) []byte {
			m.addFile(strings.Repeat("aaaaaaaa/", 600)+"x", "x")
			return nil
		}},
		{name: "endless name", want: refused, errorText: "longer than 255", make: func(m *maker, _ string) []byte {
			m.addFile(strings.Repeat("a", 300), "x")
			return nil
		}},
		{name: "endless depth", want: refused, errorText: "deep", make: func(m *maker, _ string) []byte {
			m.addFile(strings.Repeat("a/", 200)+"x", "x")
			return nil
		}},
		{name: "GNU long name bomb", want: refused, errorText: "before", make: raw('L', "x", octal(2<<20), strings.Repeat("a", 2<<20))},
		{name: "GNU long link bomb", want: refused, errorText: "before", make: raw('K', "x", octal(2<<20), strings.Repeat("a", 2<<20))},
		{name: "PAX header bomb", want: refused, errorText: "before", make: raw('x', "x", octal(2<<20), paxRecord("comment", strings.Repeat("a", 2<<20-20)))},
		{name: "GNU long name of 100 MB that is not there", want: refused, errorText: "before", make: raw('L', "x", octal(100<<20), "a")},
		{name: "size larger than the archive", want: refused, errorText: "liar", make: raw('0', "liar", octal(1<<20), "short")},
		{name: "size larger than the limit", want: refused, errorText: "liar", make: raw('0', "liar", octal(1<<30), "short")},
		{name: "PAX size lie", want: refused, errorText: "liar", make: func(m *maker, _ string) []byte {
			m.addPAX("size", "2000000")
			m.addBlock('0', "liar", octal(5), "short")
			return nil
		}},
		{name: "PAX size of 8 exabytes", want: refused, errorText: "limit", make: func(m *maker, _ string) []byte {
			m.addPAX("size", "9223372036854775807")
			m.addBlock('0', "liar", octal(5), "short")
			return nil
		}},
		{name: "PAX size negative", want: refused, make: func(m *maker, _ string) []byte {
			m.addPAX("size", "-5")
			m.addBlock('0', "liar", octal(5), "short")
			return nil
		}},
		{name: "negative size", want: refused, errorText: "before", make: raw('0', "liar", "\xff"+strings.Repeat("\xff", 10)+"\xf0", "short")},
		{name: "sparse file of 8 exabytes", want: refused, errorText: "limit", make: func(m *maker, _ string) []byte {
			m.addPAX("GNU.sparse.major", "0", "GNU.sparse.minor", "1", "GNU.sparse.name", "bomb",
				"GNU.sparse.size", "9223372036854775807", "GNU.sparse.numblocks", "1", "GNU.sparse.map", "9223372036854775800,5")
			m.addBlock('0', "bomb", octal(5), "short")
			return nil
		}},
		{name: "sparse file that stays within the size but not the ratio", want: refused, errorText: "times", make: func(m *maker, _ string) []byte {
			m.addPAX("GNU.sparse.major", "0", "GNU.sparse.minor", "1", "GNU.sparse.name", "bomb",
				"GNU.sparse.size", "3000000", "GNU.sparse.numblocks", "1", "GNU.sparse.map", "0,5")
			m.addBlock('0', "bomb", octal(5), "short")
			return nil
		}},
		{name: "too many files", want: refused, errorText: "500", make: func(m *maker, _ string) []byte {
			for i := range arenaFiles + 1 {
				m.addFile("d/"+octal(i), "")
			}
			return nil
		}},
		{name: "too many directories between", want: refused, errorText: "500", make: func(m *maker, _ string) []byte {
			for i := range 10 {
				m.addFile(octal(i)+strings.Repeat("/d", 100), "")
			}
			return nil
		}},
		{name: "too many bytes", want: refused, errorText: "4194304", make: func(m *maker, _ string) []byte {
			for i := range 5 {
				m.addFile(octal(i), strings.Repeat("a", 1<<20))
			}
			return nil
		}},
		{name: "gzip bomb", want: refused, errorText: "50 times", make: func(m *maker, _ string) []byte {
			m.addFile("zeros", strings.Repeat("\x00", 3<<20))
			return compress(m.bytes(), "gzip")
		}},
		{name: "zstd bomb", want: refused, errorText: "50 times", make: func(m *maker, _ string) []byte {
			m.addFile("zeros", strings.Repeat("\x00", 3<<20))
			return compress(m.bytes(), "zstd")
		}},
		{name: "padding bomb", want: refused, errorText: "50 times", make: func(m *maker, _ string) []byte {
			m.addFile("x", "x")
			return compress(append(m.bytes(), make([]byte, 8<<20)...), "gzip")
		}},
		{name: "zstd window of 4 GiB", want: refused, make: func(*maker, string) []byte {
			b := binary.LittleEndian.AppendUint32(nil, 0xfd2fb528)
			return append(b, 0x00, 22<<3, 1, 0, 0)
		}},
		{name: "gzip in gzip", want: refused, make: func(m *maker, _ string) []byte {
			return compress(compress(plain(m), "gzip"), "gzip")
		}},
		{name: "gzip cut short", want: refused, make: func(m *maker, _ string) []byte {
			b := compress(plain(m), "gzip")
			return b[:len(b)-6]
		}},
		{name: "garbage behind gzip", want: refused, make: func(m *maker, _ string) []byte {
			return append(compress(plain(m), "gzip"), "garbage"...)
		}},
		{name: "garbage behind the end", want: refused, errorText: "behind its end", make: func(m *maker, _ string) []byte {
			return append(plain(m), "garbage"...)
		}},
		{name: "archive behind the end", want: refused, errorText: "behind its end", make: func(m *maker, _ string) []byte {
			return append(plain(m), plain(newMaker(m.t))...)
		}},
		{name: "no end", want: refused, errorText: "cut short", make: func(m *maker, _ string) []byte {
			b := plain(m)
			return b[:len(b)-1024]
		}},
		{name: "half an end", want: refused, errorText: "cut short", make: func(m *maker, _ string) []byte {
			b := plain(m)
			return b[:len(b)-512]
		}},
		{name: "broken checksum", want: refused, make: func(m *maker, _ string) []byte {
			b := plain(m)
			b[0] ^= 1
			return b
		}},
		{name: "unknown kind of entry", want: refused, errorText: "type", make: raw('M', "volume", octal(0), "")},
		{name: "nothing", want: refused, make: func(*maker, string) []byte { return []byte{} }},
		{name: "an end and nothing else", want: refused, errorText: "nothing", make: func(*maker, string) []byte { return make([]byte, 10240) }},
		{name: "xz", want: refused, errorText: "xz", make: func(*maker, string) []byte { return []byte("\xfd7zXZ\x00\x00\x04") }},
		{name: "bzip2", want: refused, errorText: "bzip2", make: func(*maker, string) []byte { return []byte("BZh91AY&SY") }},
		{name: "zip", want: refused, errorText: "zip", make: func(*maker, string) []byte { return []byte("PK\x03\x04aaaaaa") }},
		{name: "text", want: refused, errorText: "not a tar", make: func(*maker, string) []byte { return []byte(strings.Repeat("hello ", 500)) }},
		{name: "archive of images", want: refused, errorText: "images", make: func(m *maker, _ string) []byte {
			m.addFile("manifest.json", "[]")
			m.addFile("blobs/sha256/x", "")
			return nil
		}},
		{name: "times out of range", want: confined, make: func(m *maker, _ string) []byte {
			m.addEntry(tar.Header{Name: "a", ModTime: time.Unix(1<<40, 0), Format: tar.FormatPAX}, "x")
			m.addEntry(tar.Header{Name: "b", ModTime: time.Unix(-1<<40, 0), Format: tar.FormatPAX}, "x")
			return nil
		}},
		{name: "global header", want: confined, make: func(m *maker, _ string) []byte {
			record := paxRecord("path", "pwned")
			m.addBlock('g', "pax", octal(len(record)), record)
			m.addFile("x", "x")
			return nil
		}},
	}
}

// compress compresses b.
func compress(b []byte, how string) []byte {
	var buf bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&buf)
	if how == "zstd" {
		z, err := zstd.NewWriter(&buf)
		if err != nil {
			panic(err)
		}
		w = z
	}
	if _, err := w.Write(b); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return buf.Bytes()
}
