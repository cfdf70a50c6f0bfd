package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/brig-run/brig/guest/wire"
)

// callError is an error whose kind is reported to the host.
type callError struct{ reported wire.Error }

func (e *callError) Error() string { return e.reported.Message }

func newFailure(kind, field, format string, args ...any) error {
	return &callError{reported: wire.Error{Kind: kind, Field: field, Message: fmt.Sprintf(format, args...)}}
}

func newInvalidError(format string, args ...any) error {
	return newFailure("invalid", "", format, args...)
}

func readCall(r *wire.Reader) (*wire.Call, error) {
	f, err := r.Read()
	if err != nil {
		return nil, err
	}
	if f.Type != wire.TypeCall {
		return nil, newInvalidError("the first frame has type %d, want a call", f.Type)
	}
	var call wire.Call
	if err := json.Unmarshal(f.Payload, &call); err != nil {
		return nil, newInvalidError("decode call: %v", err)
	}
	if call.Version != wire.Version {
		return nil, newInvalidError("protocol version %d, want %d", call.Version, wire.Version)
	}
	return &call, nil
}

// writer sends frames from several goroutines. After the first error it discards all frames,
// because a process must not block when its host disconnects.
type writer struct {
	c net.Conn

	mu   sync.Mutex // guards the fields below, and serializes frames on c
	dead bool
}

// writeFrame sends a frame that the caller has already encoded.
func (w *writer) writeFrame(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return
	}
	if _, err := w.c.Write(b); err != nil {
		w.dead = true
	}
}

func (w *writer) writeJSON(t wire.Type, v any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return
	}
	if err := wire.WriteJSON(w.c, t, v); err != nil {
		w.dead = true
	}
}

func (w *writer) writeOK() { w.writeJSON(wire.TypeOK, nil) }

// writeResult ends a call that does not return data.
func (w *writer) writeResult(err error) {
	if err != nil {
		w.fail(err)
		return
	}
	w.writeOK()
}

func (w *writer) fail(err error) {
	if e, ok := errors.AsType[*callError](err); ok {
		w.writeJSON(wire.TypeError, e.reported)
		return
	}
	w.writeJSON(wire.TypeError, wire.Error{Kind: "internal", Message: err.Error()})
}
