// Package workspace keeps directories that outlive sandboxes: lines of
// versions, each an immutable manifest of names over contents that are kept
// once for a tenant, whatever they are called and however often they are there.
//
// Where things are kept, it knows as Objects: a folder (Dir) or a bucket (S3).
// What is read from there is not trusted: a manifest is checked before a name
// of it is used, and a content while it is read.
//
// A commit writes contents, then the manifest, then the record of the version,
// which is made only if there is none of its number. So a version is there or
// not, and no two of one number ever are. Nothing else ever changes but the
// names of workspaces, and what nothing needs any more is swept.
package workspace

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
)

// Objects keeps bytes under keys. A key is made by this package: segments of
// letters, digits and "=-", with slashes between. Its methods are safe for
// concurrent use.
type Objects interface {
	// Kind is what a workspace says of where it is: "local" or "s3".
	Kind() string
	// Put writes an object, whole or not at all.
	Put(ctx context.Context, key string, data []byte) error
	// Stage begins an object that is too large for memory, and whose key is
	// not known yet.
	Stage(ctx context.Context) (Stage, error)
	// Create writes an object if there is none, whole or not at all, for good:
	// with all that was written before, it outlives a power cut. Otherwise it
	// is ErrTaken.
	Create(ctx context.Context, key string, data []byte) error
	// Get opens an object; ErrMissing. The caller closes it.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// Has reports whether there is an object.
	Has(ctx context.Context, key string) (bool, error)
	// List calls f with the keys that begin with prefix, which ends in a
	// slash, in any order.
	List(ctx context.Context, prefix string, f func(key string) error) error
	// Delete removes an object. It is no error when there is none.
	Delete(ctx context.Context, key string) error
	// Hold keeps objects that nothing names from being swept until release is
	// called: those below a key. With alone, nobody else holds them. What is
	// below another key is another's, and does not wait for it.
	Hold(key string, alone bool) (release func(), err error)
}

// Stage is an object that is being written. One of Keep and Drop ends it.
type Stage interface {
	io.Writer
	// Keep puts it under its key.
	Keep(ctx context.Context, key string) error
	// Drop forgets it; after Keep it does nothing.
	Drop()
}

// What Objects answer.
var (
	ErrMissing = errors.New("no such object")
	ErrTaken   = errors.New("the object is there already")
)

// errBroken is that something is there and is not what was written. What else
// goes wrong is a store that does not answer, and may do so later.
var errBroken = errors.New("it is not what was written")

// holds are the locks of those keys that this process has held.
type holds struct{ all sync.Map } // *sync.RWMutex by key

// take waits for a lock, and returns what gives it back.
func (h *holds) take(key string, alone bool) (release func()) {
	v, _ := h.all.LoadOrStore(key, &sync.RWMutex{})
	l := v.(*sync.RWMutex)
	if alone {
		l.Lock()
		return l.Unlock
	}
	l.RLock()
	return l.RUnlock
}

// broken reports whether an error says that what is kept is lost.
func broken(err error) bool { return errors.Is(err, errBroken) || errors.Is(err, ErrMissing) }

// checkKey is the last thing between a key and what it names. None that this
// package makes is refused.
func checkKey(key string) error {
	for segment := range strings.SplitSeq(strings.TrimSuffix(key, "/"), "/") {
		if segment == "" || strings.Trim(segment, "abcdefghijklmnopqrstuvwxyz0123456789=-") != "" {
			return errors.New("not a key: " + key)
		}
	}
	return nil
}
