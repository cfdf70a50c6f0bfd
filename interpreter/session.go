package interpreter

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// ErrGone is returned if the interpreter ended without sending the expected message.
var ErrGone = errors.New("the interpreter has ended")

// StartError is returned if an interpreter does not become ready. It includes the interpreter's
// output.
type StartError struct {
	Stderr string
	Err    error
}

// Error implements error.
func (e *StartError) Error() string { return fmt.Sprintf("start interpreter: %v: %s", e.Err, e.Stderr) }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// RequestError is returned if a request cannot be encoded. Nothing was sent, and the session can still
// be used.
type RequestError struct{ Err error }

// Error implements error.
func (e *RequestError) Error() string { return fmt.Sprintf("encode request: %v", e.Err) }

// Unwrap returns the cause.
func (e *RequestError) Unwrap() error { return e.Err }

// Sink receives the output and the messages of a run, in order. The slice passed to Output is
// valid only during the call.
type Sink struct {
	Output  func(brig.From, []byte)
	Message func(*Message)
}

// Session communicates with one interpreter, one request at a time.
type Session struct {
	brig.Process
	// Version and Flavor are the values that the driver reported.
	Version, Flavor string
	// Nonces reports whether every message has a nonce. Only drivers that were started by an
	// earlier version of Brig send messages without nonces.
	Nonces bool

	request string // the nonce of the request that Do carries out

	mu    sync.Mutex // guards the field below
	pings []string   // nonces of pings whose pongs are outstanding
}

// WithProcess returns the session of the same driver on another process.
func (s *Session) WithProcess(p brig.Process) *Session {
	return &Session{Process: p, Version: s.Version, Flavor: s.Flavor, Nonces: s.Nonces}
}

// Open waits until the driver on p is ready, and returns a Session.
func Open(ctx context.Context, p brig.Process) (*Session, error) {
	s := &Session{Process: p}
	defer context.AfterFunc(ctx, func() { p.Close() })()
	var output bytes.Buffer
	m, err := s.await("ready", "", Sink{Output: func(_ brig.From, b []byte) {
		if output.Len() < 4<<10 {
			output.Write(b)
		}
	}})
	if err != nil {
		return nil, errors.Join(&StartError{Stderr: string(bytes.TrimSpace(output.Bytes())), Err: err}, context.Cause(ctx))
	}
	s.Version, s.Flavor, s.Nonces = m.Version, m.Flavor, m.Nonces
	return s, nil
}

// Do sends a request and returns its end message. It returns ErrGone if the interpreter exits
// instead, and a ViolationError if other code used the driver's channel. After an error other than a
// RequestError, the session is unusable. Canceling ctx does not end the request.
func (s *Session) Do(ctx context.Context, o Request, sink Sink) (*Message, error) {
	o.Nonce, o.Acks = rand.Text(), o.Op == "cell" || o.Op == "step"
	s.request = o.Nonce
	if err := s.sendNext(o); err != nil {
		return nil, err
	}
	w := &requestWatch{s: s}
	if s.Nonces && o.Op == "cell" { // before other requests, no code has run that could read them
		w.begin(context.WithoutCancel(ctx))
	}
	defer w.recordAnswer()
	for {
		m, err := s.next(sink)
		if err == nil {
			err = s.check(m, w)
		}
		if err == nil && m.Ack > 0 {
			_ = s.send(Request{Op: "ack", Ack: m.Ack}) // on failure, the remaining output must still be read
		}
		switch {
		case w.state.Load() == requestLost:
			return nil, errLost
		case err != nil:
			return nil, err
		case m.Type == "end":
			return m, nil
		case m.Type != "" && m.Type != "pong" && sink.Message != nil:
			sink.Message(m)
		}
	}
}

// check returns an error if m violates the protocol during the request that w watches.
func (s *Session) check(m *Message, w *requestWatch) error {
	switch {
	case !s.Nonces:
		return nil
	case m.Type == "pong" && s.takePong(m.Nonce):
		return w.handlePong(m.Nonce)
	case m.Type == "":
		return errGarbage
	case m.Nonce != s.request:
		return errForeign
	case m.Type == "violation":
		return violationOf(m)
	case m.Type == "started" && w.started:
		return errRepeated
	}
	w.started = w.started || m.Type == "started"
	w.recordAnswer()
	return nil
}

// ReceiveRest passes the output of child processes that outlive a program to output. It returns
// when the last of them has closed its output, at the deadline, or after about size bytes. It is
// called after the end of a program that closes its own output (Message.Closed) or has exited.
func (s *Session) ReceiveRest(deadline time.Time, size int64, output func(brig.From, []byte)) {
	p, ok := s.Process.(interface {
		ReceiveRest(deadline time.Time) (brig.From, []byte, error)
	})
	for ok && size > 0 && time.Now().Before(deadline) {
		from, b, err := p.ReceiveRest(deadline)
		if err != nil {
			return // the program's result is known, so an error only ends its output
		}
		size -= int64(len(b))
		output(from, b)
	}
}

// Warm makes the driver load modules that programs are likely to use, and waits until they are
// loaded.
func (s *Session) Warm() error {
	if err := s.sendNext(Request{Op: "warm"}); err != nil {
		return err
	}
	return s.Sync("warm", Sink{})
}

// Import makes a Python driver load the modules that cells use, and then import the given
// modules. It returns the error of the first import that fails.
func (s *Session) Import(modules []string) error {
	err := s.sendNext(Request{Op: "warm", Env: map[string]string{"BRIG_CELLS": "1"}, Imports: modules})
	if err == nil {
		err = s.sendNext(Request{Op: "ping", Nonce: "import"})
	}
	if err != nil {
		return err
	}
	var failed error
	for {
		m, err := s.next(Sink{})
		switch {
		case err != nil:
			return err
		case m.Type == "error" && failed == nil:
			failed = fmt.Errorf("%.100s: %.500s", m.Name, m.Value)
		case m.Type == "pong" && m.Nonce == "import":
			return failed
		}
	}
}

// Prepare makes the driver load the modules that cells use, without waiting for it. The
// interpreter must be idle.
func (s *Session) Prepare() error {
	if err := s.send(Request{Op: "warm", Env: map[string]string{"BRIG_CELLS": "1"}}); err != nil {
		return err
	}
	_, err := s.sendPing() // its pong shows the watch of the first cell that the driver is no longer busy
	return err
}

// Chdir makes the Python driver change to an existing directory. It must be
// called before the first cell.
func (s *Session) Chdir(dir string) error { return s.send(Request{Op: "chdir", Dir: dir}) }

// Park makes the driver replace its descriptors with the pipes in a directory of the guest.
// Afterwards, the process of s is no longer connected to the driver.
func (s *Session) Park(dir string) error { return s.send(Request{Op: "park", Dir: dir}) }

// Wake wakes an interpreter that has been idle for a long time, before the next
// request. It does not wait for the response.
func (s *Session) Wake() {
	_, _ = s.sendPing() // the next request reports the error
}

// Sync discards the remaining messages of earlier requests and all other lines, and checks that
// the driver responds. The nonce must be unknown to the code in the sandbox. Output that arrives
// in the meantime is passed to sink.
func (s *Session) Sync(nonce string, sink Sink) error {
	if err := s.sendNext(Request{Op: "ping", Nonce: nonce}); err != nil {
		return err
	}
	_, err := s.await("pong", nonce, Sink{Output: sink.Output})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pings = nil // their pongs preceded this one
	return err
}

// Renew makes the driver reseed the random generators of its process, which now runs in a copy of
// its sandbox. It waits for the driver, and discards the remaining messages of earlier requests.
// A driver without such generators ignores the request.
func (s *Session) Renew(nonce string, sink Sink) error {
	if err := s.sendNext(Request{Op: "renew"}); err != nil {
		return err
	}
	return s.Sync(nonce, sink)
}

func (s *Session) send(o Request) error {
	b, err := json.Marshal(o)
	if err != nil {
		return &RequestError{err}
	}
	return s.Send(b)
}

// sendNext sends a request whose response is awaited. It returns ErrGone if the interpreter cannot
// receive it.
func (s *Session) sendNext(o Request) error {
	err := s.send(o)
	if err != nil && !errors.As(err, new(*RequestError)) {
		err = errors.Join(ErrGone, err)
	}
	return err
}

// await passes output to sink until a message of the given kind and nonce arrives, and returns
// that message. It discards other messages.
func (s *Session) await(kind, nonce string, sink Sink) (*Message, error) {
	for {
		m, err := s.next(sink)
		if err != nil || m.Type == kind && m.Nonce == nonce {
			return m, err
		}
	}
}

// next passes output to sink until a message arrives, and returns it (see decodeMessage).
func (s *Session) next(sink Sink) (*Message, error) {
	for {
		from, b, err := s.Receive()
		switch {
		case errors.Is(err, io.EOF):
			return nil, ErrGone
		case err != nil:
			return nil, receiveError(err)
		case from != brig.FromMessage:
			if sink.Output != nil {
				sink.Output(from, b)
			}
			continue
		}
		return decodeMessage(b), nil
	}
}
