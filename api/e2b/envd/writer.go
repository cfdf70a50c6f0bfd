package envd

import (
	"net/http"
	"sync/atomic"
	"time"
)

// patience is how long a client may leave what it is sent unread. It holds up
// the process whose output it is.
const patience = 5 * time.Minute

// writer is the way to the client. It gives up on one that does not read, and
// once it is broken nothing more gets out.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	timed   bool
	broken  atomic.Bool
	err     error
}

func newWriter(w http.ResponseWriter) *writer {
	return &writer{ResponseWriter: w, control: http.NewResponseController(w)}
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	if w.broken.Load() {
		return len(p), nil
	}
	if w.err != nil {
		return 0, w.err
	}
	w.timed = w.control.SetWriteDeadline(time.Now().Add(patience)) == nil
	n, err := w.ResponseWriter.Write(p)
	w.err = err
	return n, err
}

// Flush implements http.Flusher. Its error is that of the next Write.
func (w *writer) Flush() {
	if w.broken.Load() || w.err != nil {
		return
	}
	w.err = w.control.Flush()
	if w.timed {
		_ = w.control.SetWriteDeadline(time.Time{}) // a silent stream is not a slow client
	}
}

// abort keeps the answer from ending as if it were whole.
func (w *writer) abort() { w.broken.Store(true) }

// finish lets the connection serve others, and reports whether it must not.
func (w *writer) finish() (abort bool) {
	if w.timed {
		_ = w.control.SetWriteDeadline(time.Time{}) // it worked before
	}
	return w.broken.Load()
}
