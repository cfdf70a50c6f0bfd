package supervisor

import (
	"bufio"
	"io"
	"net"
	"time"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/journal"
)

// formatLogTime formats the time that precedes a line.
func formatLogTime(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z ") }

// sendLog sends the log, with a time before each line if timed is set.
func (m *machine) sendLog(c net.Conn, timed bool) {
	read := journal.Read
	if timed {
		read = func(name string) (io.ReadCloser, error) { return journal.ReadTimed(name, formatLogTime) }
	}
	text, err := read(m.logFile())
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
