package brig

import (
	"context"
	"io"
	"time"
)

// Files is what can be done with the files of one sandbox. All of it happens
// inside: no path of a guest is ever looked up on the host.
//
// A path that is not there is NotFound, one of the wrong type InvalidArgument
// with the field "path". A disk that is full is FailedPrecondition.
type Files interface {
	// Stat says what is at a path itself: a link is not followed.
	Stat(ctx context.Context, p Path) (*Entry, error)
	// List returns what is in a directory, and in those below it down to
	// depth, sorted by path. Links to directories are followed at p only. At
	// most MaxEntries are returned; more are FailedPrecondition.
	List(ctx context.Context, p Path, depth int) ([]*Entry, error)
	// MakeDir makes a directory and those above it. One that is there is
	// AlreadyExists.
	MakeDir(ctx context.Context, p Path) (*Entry, error)
	// Move renames, and makes the directories above the new name. What is
	// there is replaced, as rename does.
	Move(ctx context.Context, from, to Path) (*Entry, error)
	// Remove removes what is at a path, with all that is below. It is no
	// error when nothing is.
	Remove(ctx context.Context, p Path) error
	// Read opens a regular file from an offset on, for at most n bytes, or to
	// its end if n is negative. Entry.Size is that of the whole file. The
	// caller closes it.
	Read(ctx context.Context, p Path, from, n int64) (*Entry, io.ReadCloser, error)
	// Write makes a file of what r has, and the directories above it. A file
	// that is there is replaced in place, with its mode kept unless one is
	// given.
	Write(ctx context.Context, p Path, w FileWrite, r io.Reader) (*Entry, error)
	// Compose makes one file of several, in that order, and removes those.
	Compose(ctx context.Context, from []Path, to Path) (*Entry, error)
	// Watch tells on what changes in a directory, until ctx ends or on
	// returns an error, which it returns. Its first call, with a change
	// without Kinds, says that the watch has begun.
	Watch(ctx context.Context, p Path, recursive bool, on func(FileChange) error) error
}

// MaxEntries bounds what Files.List returns.
const MaxEntries = 100_000

// Path is a place in a sandbox's file system.
type Path struct {
	// Name is absolute. A relative one begins at the user's home, as "~" does.
	Name string
	// User owns what is made: "user" (the default) or "root".
	User string
}

// Entry is what there is at a path.
type Entry struct {
	Name string // its last part
	Path string // absolute
	Type EntryType
	// Size is in bytes.
	Size int64
	// Mode are the permission bits.
	Mode uint32
	// Owner and Group are names, or numbers where the image has no name.
	Owner, Group string
	Modified     time.Time
	// Target is where a symbolic link leads, absolute.
	Target string
	// Metadata is what was given with the file when it was written.
	Metadata map[string]string
}

// EntryType tells files from directories.
type EntryType string

// The types of entries.
const (
	RegularFile EntryType = "file"
	Directory   EntryType = "directory"
	Symlink     EntryType = "symlink"
	OtherFile   EntryType = "other" // a socket, a pipe, a device
)

// FileWrite is what a file gets beside its content.
type FileWrite struct {
	// Mode are permission bits. Default 0644 for a new file.
	Mode uint32
	// Metadata replaces what there was: lower-case keys, printable ASCII, at
	// most 4 KiB.
	Metadata map[string]string
}

// FileChange is what happened to one name in a directory that is watched.
type FileChange struct {
	// Name is relative to the directory.
	Name  string
	Kinds []ChangeKind
	// Entry is what is there now, if anything is.
	Entry *Entry
}

// ChangeKind is one thing that can happen to a file.
type ChangeKind string

// The kinds of changes, in the order in which one change has them.
const (
	Created  ChangeKind = "create"
	Renamed  ChangeKind = "rename" // away; what it is now is created
	ModeSet  ChangeKind = "chmod"
	Written  ChangeKind = "write"
	Vanished ChangeKind = "remove"
)
