package client

import (
	"errors"
	"io"
	"sync"
)

// source is a request body that reads from the caller's reader. It records the
// reader's error, which is more useful to the caller than the resulting
// connection error.
type source struct {
	r io.Reader

	mu      sync.Mutex // guards the fields below
	err     error
	stopped bool
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	s.mu.Lock()
	stopped := s.stopped
	s.mu.Unlock()
	if stopped {
		return 0, io.ErrClosedPipe
	}
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	return n, err
}

// stop prevents further reads, because the caller may use the reader again after the call has
// returned.
func (s *source) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// readError returns the error of the reader, or nil.
func (s *source) readError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
