package interpreter

import (
	"context"
	"crypto/rand"
	"slices"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
)

// ViolationError reports that code other than the driver used the session's channel. The session
// cannot continue.
type ViolationError struct {
	// What describes the violation to the owner of the code.
	What string
}

// Error implements error.
func (e *ViolationError) Error() string {
	return "the protocol of the interpreter was broken: " + e.What
}

// ViolationLost is the Name of a violation message that reports a lost request.
const ViolationLost = "lost"

// The violations.
var (
	errForeign  = &ViolationError{"a line that does not belong to this run was written to a descriptor of the interpreter"}
	errGarbage  = &ViolationError{"a line on a descriptor of the interpreter is not a message, is nested too deeply or has too many parts"}
	errRepeated = &ViolationError{"a line on a descriptor of the interpreter repeats that the code has started"}
	errLost     = &ViolationError{"the code did not start, because other code read from a descriptor of the interpreter"}
)

// receiveError converts an error of Receive. A message that is too long is a violation.
func receiveError(err error) error {
	if brig.KindOf(err) != brig.FailedPrecondition {
		return err
	}
	e := brig.AsError(err)
	return &ViolationError{e.Message + ": " + e.Hint}
}

// violationOf returns the violation that a driver reported. It does not use the text of the
// message, because the guest can forge it.
func violationOf(m *Message) *ViolationError {
	if m.Name == ViolationLost {
		return errLost
	}
	return errForeign
}

// requestGrace is how long a driver may take to answer a request that it has read.
const requestGrace = 5 * time.Second

// requestWatch detects that other code has read a request from the driver's channel. A request
// that is still unread is not lost, because code from an earlier cell may keep the driver busy.
type requestWatch struct {
	s       *Session
	state   atomic.Int32 // initially requestOpen
	read    bool         // whether an earlier check found that the request was read
	started bool         // the driver has reported that the code has started

	// Guarded by s.mu: the timer, and the nonce of the ping that follows the request.
	timer *time.Timer
	ping  string
}

// The states of a requestWatch.
const (
	requestOpen     = iota
	requestAnswered // a message of the request has arrived
	requestLost     // no message of the request can arrive any more
)

// begin starts the timer that checks the latest request.
func (w *requestWatch) begin(ctx context.Context) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.timer = time.AfterFunc(requestGrace, func() { w.check(ctx) })
}

// recordAnswer records that a message of the request has arrived.
func (w *requestWatch) recordAnswer() {
	if !w.state.CompareAndSwap(requestOpen, requestAnswered) {
		return
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}

// checkAgain restarts the timer.
func (w *requestWatch) checkAgain() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.timer.Reset(requestGrace)
}

// check kills the interpreter if the request was read at least requestGrace ago and not answered.
// If the process cannot determine whether the request was read, check sends a ping.
func (w *requestWatch) check(ctx context.Context) {
	if w.state.Load() != requestOpen {
		return
	}
	unread, known := w.s.unread()
	switch {
	case !known:
		nonce, _ := w.s.sendPing() // an error means that the interpreter has ended
		w.s.mu.Lock()
		w.ping = nonce
		w.s.mu.Unlock()
	case unread > 0 || w.s.hasPendingPing(): // the driver is busy
		w.read = false
		w.checkAgain()
	case !w.read:
		w.read = true
		w.checkAgain()
	case w.state.CompareAndSwap(requestOpen, requestLost):
		ctx, cancel := context.WithTimeout(ctx, requestGrace)
		defer cancel()
		_ = w.s.Kill(ctx) // on failure, the time limit of the code ends the interpreter
	}
}

// handlePong handles the response to a ping. A driver carries out requests in order, so a pong
// arrives after all responses to the request before the ping.
func (w *requestWatch) handlePong(nonce string) error {
	w.s.mu.Lock()
	isCurrent := nonce == w.ping
	w.s.mu.Unlock()
	if isCurrent && w.state.CompareAndSwap(requestOpen, requestLost) {
		return errLost
	}
	return nil
}

// unread returns the number of bytes that the driver has not read yet. known is false if the
// process cannot determine the number.
func (s *Session) unread() (n int, known bool) {
	if p, ok := s.Process.(interface{ Unread() (int, bool) }); ok {
		return p.Unread()
	}
	return 0, false
}

// sendPing sends a ping without waiting for the pong, and returns its nonce.
func (s *Session) sendPing() (nonce string, err error) {
	nonce = rand.Text()
	s.mu.Lock()
	s.pings = append(s.pings, nonce)
	s.mu.Unlock()
	return nonce, s.send(Request{Op: "ping", Nonce: nonce})
}

// hasPendingPing reports whether a pong is outstanding.
func (s *Session) hasPendingPing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pings) > 0
}

// takePong reports whether nonce belongs to an outstanding ping, and removes it.
func (s *Session) takePong(nonce string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.pings, nonce)
	if i >= 0 {
		s.pings = slices.Delete(s.pings, i, i+1)
	}
	return i >= 0
}
