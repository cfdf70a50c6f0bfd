// Package sparse writes files with holes in place of zeros. A sandbox's sparse file may have an
// apparent size that exceeds the sandbox's disk limit.
package sparse

import (
	"bytes"
	"os"
)

// blockSize is the unit in which zeros become holes, in bytes.
const blockSize = 4096

var zeros [blockSize]byte

// File is a new file that is written sequentially. A run of zeros becomes a hole.
type File struct {
	*os.File
	at   int64
	hole bool // the file ends with a hole
}

// Write implements io.Writer.
func (f *File) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		n, empty := run(p[done:])
		if !empty {
			if _, err := f.WriteAt(p[done:done+n], f.at); err != nil {
				return done, err
			}
		}
		f.at, f.hole = f.at+int64(n), empty
		done += n
	}
	return len(p), nil
}

// Size returns the disk space that a file with content p uses, in bytes.
func Size(p []byte) (size int64) {
	for len(p) > 0 {
		n, empty := run(p)
		if !empty {
			size += int64(n)
		}
		p = p[n:]
	}
	return size
}

// run returns the length of the first run of blocks in p that are either all zero or all
// nonzero.
func run(p []byte) (n int, empty bool) {
	for n < len(p) {
		b := p[n:min(n+blockSize, len(p))]
		is := bytes.Equal(b, zeros[:len(b)])
		if n > 0 && is != empty {
			break
		}
		empty = is
		n += len(b)
	}
	return n, empty
}

// Fill extends the file to its full length if it ends with a hole.
func (f *File) Fill() error {
	if !f.hole {
		return nil
	}
	return f.Truncate(f.at)
}
