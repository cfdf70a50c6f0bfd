package sparse

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A file contains the written data, regardless of the sizes of the writes, and uses no blocks
// for zeros.
func TestFileHasHoles(t *testing.T) {
	content := bytes.Join([][]byte{
		make([]byte, 1<<20), []byte("text"), make([]byte, 3*blockSize), bytes.Repeat([]byte("x"), blockSize+1), make([]byte, 2<<20),
	}, nil)
	for _, size := range []int{1000, blockSize, 64 << 10, len(content)} {
		f, err := os.Create(filepath.Join(t.TempDir(), "x"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w := &File{File: f}
		for rest := content; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if _, err := w.Write(rest[:min(size, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Fill(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(f.Name())
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("in parts of %d: the content differs, %v", size, err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Blocks*512 > 64<<10 {
			t.Errorf("in parts of %d: the file takes %d bytes of the disk", size, st.Blocks*512)
		}
	}
}
