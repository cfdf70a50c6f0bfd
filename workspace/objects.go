// Package workspace stores directories that outlive sandboxes. A workspace is a
// sequence of versions. Each version is an immutable manifest that maps names
// to contents. Contents are deduplicated per tenant.
//
// The package stores all data as Objects: in a directory (Dir) or a bucket
// (S3). It does not trust stored data: it validates a manifest before it uses
// the names in it, and verifies a content while it reads it.
//
// A commit writes contents, then the manifest, then the record of the version.
// It creates the record only if no record with that number exists. Versions are
// therefore atomic, and two versions never have the same number. The only
// mutable objects are the names of workspaces. A sweep removes unreferenced
// objects.
package workspace

import (
	"context"
	"errors"
	"io"
	"strings"
)

// Objects stores bytes under keys. This package generates the keys: segments of
// letters, digits and "=-", separated by slashes. The methods are safe for
// concurrent use.
type Objects interface {
	// Kind returns the storage kind that a workspace reports: "local" or "s3".
	Kind() string
	ObjectReader
	ObjectWriter
}

// ObjectReader finds and reads objects.
type ObjectReader interface {
	// Get opens an object, or returns ErrMissing. The caller closes it.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// Size returns the size of an object in bytes, or ErrMissing.
	Size(ctx context.Context, key string) (int64, error)
	// List calls f with the keys that begin with prefix, which ends in a
	// slash, in any order.
	List(ctx context.Context, prefix string, f func(key string) error) error
}

// ObjectWriter writes and deletes objects.
type ObjectWriter interface {
	// Put writes an object atomically.
	Put(ctx context.Context, key string, data []byte) error
	// Stage starts to write an object that is too large for memory, and whose
	// key is not yet known.
	Stage(ctx context.Context) (Stage, error)
	// Create writes an object atomically if none exists; otherwise it returns
	// ErrTaken. When it returns, the object and all earlier writes are durable.
	Create(ctx context.Context, key string, data []byte) error
	// Delete deletes an object. It succeeds if the object does not exist.
	Delete(ctx context.Context, key string) error
	// RemoveAbandoned removes the remains of interrupted writes below a prefix,
	// which List does not include, and returns their number. The caller must have
	// an exclusive hold on these objects.
	RemoveAbandoned(ctx context.Context, prefix string) (int, error)
	// Hold protects unreferenced objects below a key from the sweep until release
	// is called. If exclusive is set, no other caller can hold the same key.
	// Holds on different keys are independent. Hold stops waiting when ctx ends.
	// A caller that waits for an exclusive hold delays others for at most
	// sweepPrecedence.
	Hold(ctx context.Context, key string, exclusive bool) (release func(), err error)
}

// Stage is an object that is being written. The caller must end the stage with
// Publish or Abort.
type Stage interface {
	io.Writer
	// Publish stores the object under its key, which is the digest of its content.
	// It may keep an existing object only if that object is known to be complete.
	Publish(ctx context.Context, key string) error
	// Abort discards the object. After Publish it does nothing.
	Abort()
}

// Errors of Objects.
var (
	ErrMissing = errors.New("no such object")
	ErrTaken   = errors.New("the object is there already")
)

// errBroken means that stored data exists but was modified. All errors other
// than errBroken and ErrMissing mean that the store does not respond, and may
// be temporary.
var errBroken = errors.New("it is not what was written")

// isDataLoss reports whether an error means that stored data is lost.
func isDataLoss(err error) bool { return errors.Is(err, errBroken) || errors.Is(err, ErrMissing) }

// checkKey is the last check before a key becomes a file name or an object
// name. It accepts every key that this package generates.
func checkKey(key string) error {
	for segment := range strings.SplitSeq(strings.TrimSuffix(key, "/"), "/") {
		if segment == "" || strings.Trim(segment, "abcdefghijklmnopqrstuvwxyz0123456789=-") != "" {
			return errors.New("not a key: " + key)
		}
	}
	return nil
}
