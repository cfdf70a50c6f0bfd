package workspace

import (
	"bytes"
	"io"
	"os"
)

// Bounds of the staged bytes of the commits of a tenant and of the server. A
// commit stages one file at a time, of at most brig.MaxWorkspaceFile, and does
// not know before the end whether the store has its content already.
const (
	tenantStaged = 16 << 30
	serverStaged = 32 << 30
)

// holeFile is a file that is being written. It writes a run of zeros as a hole:
// the apparent size of a sandbox's sparse file may exceed the sandbox's disk
// limit.
type holeFile struct {
	*os.File
	hole bool // the file ends with a hole
}

// Write implements io.Writer.
func (s *holeFile) Write(p []byte) (int, error) {
	s.hole = len(p) >= os.Getpagesize() && len(bytes.TrimLeft(p, "\x00")) == 0
	if !s.hole {
		return s.File.Write(p)
	}
	_, err := s.Seek(int64(len(p)), io.SeekCurrent)
	return len(p), err
}

// fill makes the file as long as what was written, if it ends with a hole.
func (s *holeFile) fill() error {
	if !s.hole {
		return nil
	}
	size, err := s.Seek(0, io.SeekCurrent)
	if err == nil {
		err = s.Truncate(size)
	}
	return err
}
