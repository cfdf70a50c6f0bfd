package envd

import (
	"net/http"
	"sync/atomic"
)

// writer is the response to the client. After abort it discards all writes.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
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
	n, err := w.ResponseWriter.Write(p)
	w.err = err
	return n, err
}

// Flush implements http.Flusher. The next Write returns the error of Flush.
func (w *writer) Flush() {
	if w.broken.Load() || w.err != nil {
		return
	}
	w.err = w.control.Flush()
}

// abort prevents a normal end of the response.
func (w *writer) abort() { w.broken.Store(true) }

// finish reports whether the connection must be aborted.
func (w *writer) finish() (abort bool) { return w.broken.Load() }
