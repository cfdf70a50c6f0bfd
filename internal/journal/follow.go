package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// Follower reads a journal while it grows. After io.EOF, Read can be called again and then
// returns newly written data. A Follower also continues with new files of the journal. Several
// processes may write to both files, so it reads both files.
type Follower struct {
	name  string
	stamp func(time.Time) string // nil if lines get no time stamps
	parts []*followedFile        // the older one first
	buf   [32 << 10]byte
	rest  []byte // formatted but not yet returned
}

// followedFile is one file of a followed journal.
type followedFile struct {
	f         *os.File
	at        int64 // offset of the next byte
	isMidLine bool
	// caughtUp is true after the end was reached once. Data that is read afterwards was written
	// just now.
	caughtUp bool

	times   *os.File // the file of time marks, once it exists
	marksAt int64    // offset of the next mark
	marks   []mark
	written time.Time // time of the last write before the file was opened
}

// Follow returns a Follower of the journal with this name. If stamp is not nil, each line
// begins with a time stamp. The journal need not exist yet.
func Follow(name string, stamp func(time.Time) string) (*Follower, error) {
	f := &Follower{name: name, stamp: stamp}
	if err := f.refresh(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// refresh opens the files that are not open yet, and closes the files that are no longer part of
// the journal. Those have been read to their end.
func (f *Follower) refresh() error {
	var now []*followedFile
	for _, name := range []string{f.name + oldSuffix, f.name} {
		st, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("follow journal: %w", err)
		}
		part := f.find(st)
		if part == nil {
			file, err := os.Open(name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("follow journal: %w", err)
			}
			if opened, err := file.Stat(); err != nil || !os.SameFile(st, opened) {
				file.Close() // the file was renamed after Lstat; the next call finds it
				continue
			}
			part = &followedFile{f: file, written: st.ModTime()}
			f.parts = append(f.parts, part)
		}
		if part.times == nil && f.stamp != nil {
			part.times, _ = os.Open(name + timesSuffix) // without this file, the log has no recorded times
		}
		now = append(now, part)
	}
	for _, part := range f.parts {
		if len(now) == 2 && part != now[0] && part != now[1] {
			part.close()
		}
	}
	if len(now) == 2 {
		f.parts = now
	}
	return nil
}

func (f *Follower) find(st os.FileInfo) *followedFile {
	for _, part := range f.parts {
		if have, err := part.f.Stat(); err == nil && os.SameFile(st, have) {
			return part
		}
	}
	return nil
}

// Read implements io.Reader. It returns io.EOF at the current end of the journal.
func (f *Follower) Read(p []byte) (int, error) {
	if err := f.fill(); err != nil {
		return 0, err
	}
	if len(f.rest) == 0 { // check for a new file
		if err := f.refresh(); err != nil {
			return 0, err
		}
		if err := f.fill(); err != nil {
			return 0, err
		}
	}
	if len(f.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, f.rest)
	if f.rest = f.rest[n:]; len(f.rest) == 0 {
		f.rest = nil
	}
	return n, nil
}

// fill reads the next data from the first file with new data, unless formatted data has not
// been returned yet.
func (f *Follower) fill() error {
	for i := 0; i < len(f.parts) && len(f.rest) == 0; i++ {
		if err := f.readPart(f.parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// readPart reads the next data of a file.
func (f *Follower) readPart(part *followedFile) error {
	n, err := part.f.Read(f.buf[:])
	if errors.Is(err, io.EOF) {
		part.caughtUp, err = true, nil
	}
	if err != nil {
		return fmt.Errorf("follow journal: %w", err)
	}
	if n == 0 {
		return nil
	}
	if f.stamp == nil {
		part.at += int64(n)
		f.rest = append(f.rest, f.buf[:n]...)
		return nil
	}
	part.readMarks()
	if older := f.parts[0]; part.at == 0 && part != older {
		part.isMidLine = older.isMidLine // the last line of the older file may continue here
	}
	for line := range bytes.Lines(f.buf[:n]) {
		if !part.isMidLine {
			f.rest = append(f.rest, f.stamp(part.time())...)
		}
		f.rest = append(f.rest, line...)
		part.at += int64(len(line))
		part.isMidLine = line[len(line)-1] != '\n'
	}
	return nil
}

// readMarks reads the marks that were added since the last call.
func (part *followedFile) readMarks() {
	if part.times == nil {
		return
	}
	var b [markSize]byte
	for {
		if n, err := part.times.ReadAt(b[:], part.marksAt); n < markSize || err != nil && !errors.Is(err, io.EOF) {
			break
		}
		part.marksAt += markSize
		part.marks = append(part.marks, readMark(b[:]))
	}
	sortMarks(part.marks)
}

// time returns the time of the data at the current offset. The mark of recently written data
// may not exist yet.
func (part *followedFile) time() time.Time {
	part.marks = dropMarks(part.marks, part.at)
	now := time.Now()
	switch {
	case len(part.marks) == 0 && part.caughtUp:
		return now
	case len(part.marks) == 0:
		return part.written
	case part.caughtUp && part.marks[0].from < part.at && now.Sub(part.marks[0].at) > 2*markLate:
		return now
	}
	return part.marks[0].at
}

func (part *followedFile) close() {
	part.f.Close()
	if part.times != nil {
		part.times.Close()
	}
}

// Close implements io.Closer.
func (f *Follower) Close() error {
	for _, part := range f.parts {
		part.close()
	}
	f.parts = nil
	return nil
}
