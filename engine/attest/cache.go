package attest

import (
	"sync"

	"github.com/brig-run/brig"
)

// Cache holds the examinations of instances, by image. The zero value is empty.
type Cache struct {
	mu     sync.Mutex              // guards the fields below
	images map[string]*Examination // by digest
	busy   map[string]bool         // digests that are being examined
}

// Examination is the result of one examination of an instance.
type Examination struct {
	Findings []Finding // nil if the probe failed
	Areas    map[brig.Area]brig.Enforcement
}

// Get returns the examination of an image, or nil if there is none.
func (s *Cache) Get(digest string) *Examination {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.images[digest]
}

// Begin reports whether an image still needs to be examined and is not being
// examined now. If it returns true, the caller examines it and reports the
// result with End.
func (s *Cache) Begin(digest string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[digest] || s.images[digest] != nil {
		return false
	}
	if s.busy == nil {
		s.busy = map[string]bool{}
	}
	s.busy[digest] = true
	return true
}

// End records the result of the examination that Begin started, or nil if it failed.
func (s *Cache) End(digest string, found *Examination) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, digest)
	if found == nil {
		return
	}
	if s.images == nil {
		s.images = map[string]*Examination{}
	}
	s.images[digest] = found
}
