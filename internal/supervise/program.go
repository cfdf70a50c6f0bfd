package supervise

import (
	"sync"
	"time"
)

// Main manages the main program of a sandbox. The zero value is a program that has not been
// started.
type Main struct {
	mu         sync.Mutex    // guards the fields below
	outputDone chan struct{} // closed when the complete output is in the log; nil before the start
	done       chan struct{} // closed when the program has ended and the sandbox outlives it; nil before the first use
	code       int
}

// Begin calls run in a goroutine, unless an earlier call of Begin did so. The function run must
// return when the complete output of the program is in the log.
func (m *Main) Begin(run func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.outputDone != nil {
		return
	}
	done := make(chan struct{})
	m.outputDone = done
	go func() {
		defer close(done)
		run()
	}()
}

// outputTimeout is the maximum time for the last output of a main program to reach
// the log after the sandbox has ended.
const outputTimeout = time.Second

// AwaitOutput waits until the output of the program is in the log, if the program was started.
// The caller must call it only after the sandbox has ended.
func (m *Main) AwaitOutput() {
	m.mu.Lock()
	done := m.outputDone
	m.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(outputTimeout):
	}
}

// RecordExit records the exit code of the program, and whether the sandbox outlives it.
func (m *Main) RecordExit(code int, lingers bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.code = code
	if lingers {
		close(m.doneChannel())
	}
}

// Done returns a channel that is closed when the program has ended and the
// sandbox outlives it.
func (m *Main) Done() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.doneChannel()
}

// doneChannel is like Over, for a caller that holds m.mu.
func (m *Main) doneChannel() chan struct{} {
	if m.done == nil {
		m.done = make(chan struct{})
	}
	return m.done
}

// Code returns the recorded exit code.
func (m *Main) Code() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.code
}
