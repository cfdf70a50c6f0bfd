package supervisor

import (
	"bufio"
	"io"
	"net"
	"sync"
	"time"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/journal"
)

// log contains the output of a machine's main program, and the lines that the
// host appends.
type log struct {
	name string

	mu sync.Mutex // guards the field below
	w  *journal.Writer
}

func (l *log) append(p []byte) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w == nil {
		if l.w, err = journal.Open(l.name); err != nil {
			return err
		}
	}
	_, err = l.w.Write(p)
	return err
}

// close closes the files until the next append.
func (l *log) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w != nil {
		l.w.Close()
		l.w = nil
	}
}

// formatLogTime formats the time that precedes a line.
func formatLogTime(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z ") }

// sendLog sends the log, with a time before each line if timed is set.
func (m *machine) sendLog(c net.Conn, timed bool) {
	read := journal.Read
	if timed {
		read = func(name string) (io.ReadCloser, error) { return journal.ReadTimed(name, formatLogTime) }
	}
	text, err := read(m.log.name)
	if err != nil {
		refuse(c, "internal", "open the log: %v", err)
		return
	}
	defer text.Close()
	w := bufio.NewWriterSize(frames{c}, 64<<10)
	if _, err = io.Copy(w, text); err == nil {
		err = w.Flush()
	}
	if err == nil {
		wire.Write(c, wire.TypeOK, nil)
	}
}

// frames is a writer that sends bytes as FileData frames.
type frames struct{ c net.Conn }

func (f frames) Write(p []byte) (int, error) {
	for sent := 0; sent < len(p); {
		n := min(len(p)-sent, wire.MaxPayload)
		if err := wire.Write(f.c, wire.TypeFileData, p[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
	return len(p), nil
}
