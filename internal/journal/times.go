package journal

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Each log has a file that records when its parts were written. It consists of
// fixed-size marks. A mark contains the time of the data from its offset up to
// the next mark. The resolution of the times is limited, so that the marks
// never use more space than the log.
const (
	timesSuffix  = ".times"
	markSize     = 16
	markInterval = 10 * time.Millisecond
	markLate     = time.Second
)

// mark records the write time of the data from an offset on.
type mark struct {
	from int64
	at   time.Time
}

// marks appends to the time file of a log. If that file cannot be opened or
// written, it records no times: the log is more important than its times.
type marks struct {
	f    *os.File
	last mark
}

func openMarks(logFile string) marks {
	f, err := os.OpenFile(logFile+timesSuffix, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return marks{}
	}
	m := marks{f: f}
	if st, err := f.Stat(); err == nil && st.Size() >= markSize {
		var b [markSize]byte
		if _, err := f.ReadAt(b[:], st.Size()/markSize*markSize-markSize); err == nil {
			m.last = readMark(b[:])
		}
	}
	return m
}

// recordWrite records that the data from an offset on was written now.
func (m *marks) recordWrite(from int64) {
	now := time.Now()
	since := now.Sub(m.last.at)
	if m.f == nil || since < markLate && (since < markInterval || from-m.last.from < markSize) {
		return
	}
	m.last = mark{from, now}
	var b [markSize]byte
	binary.LittleEndian.PutUint64(b[:], uint64(from))
	binary.LittleEndian.PutUint64(b[8:], uint64(now.UnixNano()))
	_, _ = m.f.Write(b[:])
}

func (m *marks) closeFile() {
	if m.f != nil {
		m.f.Close()
	}
}

func readMark(b []byte) mark {
	return mark{int64(binary.LittleEndian.Uint64(b)), time.Unix(0, int64(binary.LittleEndian.Uint64(b[8:])))}
}

// readMarks returns the marks of a log in order. Data before the first mark, or in a log
// without marks, gets the fallback time.
func readMarks(logFile string, fallback time.Time) []mark {
	b, err := os.ReadFile(logFile + timesSuffix)
	if err != nil || len(b) < markSize {
		return []mark{{0, fallback}}
	}
	var all []mark
	for ; len(b) >= markSize; b = b[markSize:] {
		all = append(all, readMark(b))
	}
	sortMarks(all)
	return all
}

// sortMarks sorts marks by their offset. Several processes append marks, and may append
// them slightly out of order.
func sortMarks(all []mark) {
	slices.SortStableFunc(all, func(a, b mark) int { return cmp.Compare(a.from, b.from) })
}

// dropMarks removes the marks that end before an offset.
func dropMarks(all []mark, at int64) []mark {
	for len(all) > 1 && all[1].from <= at {
		all = all[1:]
	}
	return all
}

// ReadTimed is like Read but inserts a time stamp before every line.
func ReadTimed(name string, stamp func(time.Time) string) (io.ReadCloser, error) {
	open, err := openFiles(name)
	if err != nil {
		return nil, err
	}
	var all, last *timedReader
	for _, f := range open {
		st, err := f.Stat()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open journal: %w", err), open.Close())
		}
		part := &timedReader{r: bufio.NewReaderSize(f, 64<<10), stamp: stamp, marks: readMarks(f.Name(), st.ModTime())}
		if last == nil {
			all = part
		} else {
			last.next = part
		}
		last = part
	}
	if all == nil {
		return io.NopCloser(strings.NewReader("")), nil
	}
	return struct {
		io.Reader
		io.Closer
	}{all, open}, nil
}

// timedReader inserts a time stamp before every line.
type timedReader struct {
	r       *bufio.Reader
	stamp   func(time.Time) string
	marks   []mark
	at      int64  // offset in the log
	rest    []byte // read but not yet returned
	midLine bool
	next    *timedReader // for the newer file, in which a line may continue
}

// Read implements io.Reader.
func (t *timedReader) Read(p []byte) (int, error) {
	if len(t.rest) == 0 {
		part, err := t.r.ReadSlice('\n')
		for len(part) == 0 && errors.Is(err, io.EOF) && t.next != nil {
			t.next.midLine = t.midLine
			*t = *t.next
			part, err = t.r.ReadSlice('\n')
		}
		if len(part) == 0 {
			return 0, err
		}
		if !t.midLine {
			t.rest = append(t.rest, t.time()...)
		}
		t.rest = append(t.rest, part...)
		t.at += int64(len(part))
		t.midLine = part[len(part)-1] != '\n'
	}
	n := copy(p, t.rest)
	if t.rest = t.rest[n:]; len(t.rest) == 0 {
		t.rest = nil
	}
	return n, nil
}

// time returns the formatted time of the data at the current offset.
func (t *timedReader) time() string {
	t.marks = dropMarks(t.marks, t.at)
	return t.stamp(t.marks[0].at)
}
