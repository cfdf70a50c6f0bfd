package client

import (
	"errors"
	"io"
	"sync"
)

// source is a caller's reader that goes out as a body. It remembers how it
// failed, for the connection's error would tell the caller nothing.
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

// stop lets no more be read, for after the call the reader is the caller's.
func (s *source) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// failed returns how the reader failed, if it has.
func (s *source) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
