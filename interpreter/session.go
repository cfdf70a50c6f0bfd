package interpreter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/brig-run/brig"
)

// ErrGone says that the interpreter ended without the message that was due.
var ErrGone = errors.New("the interpreter has ended")

// StartError is an interpreter that did not get ready, and what it said.
type StartError struct {
	Said string
	Err  error
}

// Error implements error.
func (e *StartError) Error() string { return fmt.Sprintf("start interpreter: %v: %s", e.Err, e.Said) }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Sink receives what a run produces, in order. What Output is given is only
// valid during the call.
type Sink struct {
	Output  func(brig.From, []byte)
	Message func(*Message)
}

// Session speaks with one interpreter, about one thing at a time.
type Session struct {
	brig.Process
	// Version and Flavor are what the driver says it is.
	Version, Flavor string
}

// Open returns a Session when the driver on p is ready.
func Open(ctx context.Context, p brig.Process) (*Session, error) {
	s := &Session{Process: p}
	defer context.AfterFunc(ctx, func() { p.Close() })()
	var said bytes.Buffer
	m, err := s.until("ready", Sink{Output: func(_ brig.From, b []byte) {
		if said.Len() < 4<<10 {
			said.Write(b)
		}
	}})
	if err != nil {
		return nil, errors.Join(&StartError{Said: string(bytes.TrimSpace(said.Bytes())), Err: err}, context.Cause(ctx))
	}
	s.Version, s.Flavor = m.Version, m.Flavor
	return s, nil
}

// Do has an order carried out and returns the message that ends it. It
// returns ErrGone when the interpreter ends instead.
func (s *Session) Do(o Order, sink Sink) (*Message, error) {
	if err := s.send(o); err != nil {
		return nil, errors.Join(ErrGone, err)
	}
	return s.until("end", sink)
}

// Warm has the driver load what programs are likely to use.
func (s *Session) Warm() error {
	if err := s.send(Order{Op: "warm"}); err != nil {
		return errors.Join(ErrGone, err)
	}
	return s.Sync("warm", Sink{})
}

// Prepare has the driver load what cells need, while nobody waits.
func (s *Session) Prepare() error {
	return s.send(Order{Op: "warm", Env: map[string]string{"BRIG_CELLS": "1"}})
}

// Chdir has the driver of Python, before its first cell, change to a directory
// that there is.
func (s *Session) Chdir(dir string) error { return s.send(Order{Op: "chdir", Dir: dir}) }

// Rouse wakes an interpreter that has waited for long, so that the order that
// follows finds it awake. Its answer is of no interest.
func (s *Session) Rouse() {
	_ = s.send(Order{Op: "ping", Nonce: "rouse"}) // the order finds out if it does not listen
}

// Sync makes sure that nothing is on its way of what somebody else asked, and
// that the driver answers. Output that comes meanwhile goes to sink.
func (s *Session) Sync(nonce string, sink Sink) error {
	if err := s.send(Order{Op: "ping", Nonce: nonce}); err != nil {
		return errors.Join(ErrGone, err)
	}
	for {
		m, err := s.until("pong", Sink{Output: sink.Output})
		if err != nil || m.Nonce == nonce {
			return err
		}
	}
}

func (s *Session) send(o Order) error {
	b, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode order: %w", err)
	}
	return s.Send(b)
}

// until passes on what comes until a message of type last. What is no message
// is not worth an error: it is the guest's own to break.
func (s *Session) until(last string, sink Sink) (*Message, error) {
	for {
		from, b, err := s.Receive()
		switch {
		case errors.Is(err, io.EOF):
			return nil, ErrGone
		case err != nil:
			return nil, err
		case from != brig.FromMessage:
			if sink.Output != nil {
				sink.Output(from, b)
			}
			continue
		}
		m := new(Message)
		if json.Unmarshal(b, m) != nil {
			continue
		}
		if m.Type == last {
			return m, nil
		}
		if sink.Message != nil {
			sink.Message(m)
		}
	}
}
