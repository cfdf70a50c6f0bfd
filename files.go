package brig

import (
	"context"
	"io"
	"time"
)

// Files reads and writes the files of one sandbox. Every operation runs inside
// the sandbox with the permissions of the path's user; the host never resolves
// a path of a guest. Only callers that may run commands may use paths as root.
//
// Methods return NotFound for a missing path, PermissionDenied for a path that
// the user may not access, and InvalidArgument with the field "path" for a path
// of the wrong type. They return FailedPrecondition if the disk is full.
type Files interface {
	FileReader
	FileWriter
}

// FileReader reads the files of one sandbox.
type FileReader interface {
	// Stat describes the path itself; it does not follow a link.
	Stat(ctx context.Context, p Path) (*Entry, error)
	// List returns the entries of a directory and its subdirectories, down to
	// depth, sorted by path. It follows a link only at p itself. It returns
	// FailedPrecondition for more than MaxEntries entries.
	List(ctx context.Context, p Path, depth int) ([]*Entry, error)
	// Read opens a regular file at offset from, and returns at most n bytes, or
	// the rest of the file if n is negative. Entry.Size is the size of the whole
	// file. The caller closes the reader.
	Read(ctx context.Context, p Path, from, n int64) (*Entry, io.ReadCloser, error)
	// Watch calls on for every change in a directory, until ctx ends or on
	// returns an error, which Watch returns. The first call, a change without
	// Kinds, reports that the watch has started. Watch returns NotFound when
	// the directory was removed, moved or replaced, and FailedPrecondition when
	// there are too many changes to report. A recursive watch leaves out
	// subdirectories that the user may not read.
	Watch(ctx context.Context, p Path, recursive bool, on func(FileChange) error) error
}

// FileWriter changes the files of one sandbox.
type FileWriter interface {
	// MakeDir creates a directory and its parents. It returns AlreadyExists for
	// an existing directory.
	MakeDir(ctx context.Context, p Path) (*Entry, error)
	// Move renames a path and creates the parent directories of the new name.
	// Like rename(2), it replaces an existing file.
	Move(ctx context.Context, from, to Path) (*Entry, error)
	// Remove removes the path, recursively if it is a directory. A missing path
	// is not an error.
	Remove(ctx context.Context, p Path) error
	// Write creates a file with the content of r, and its parent directories. It
	// replaces an existing file in place and keeps its mode unless w.Mode is set.
	Write(ctx context.Context, p Path, w FileWrite, r io.Reader) (*Entry, error)
	// Compose concatenates files in order into one file, and removes the
	// sources.
	Compose(ctx context.Context, from []Path, to Path) (*Entry, error)
}

// MaxEntries bounds the result of Files.List.
const MaxEntries = 100_000

// Path is a path in a sandbox's file system.
type Path struct {
	// Name is absolute, or begins with "~", the user's home. A Service also
	// accepts a relative path. It is relative to the commands' working directory:
	// Spec.Dir, or /workspace by default. For a provider, a relative path is
	// relative to the user's home.
	Name string
	// User is the user whose permissions the call has, and the owner of the files that it
	// creates: "user" (the default) or "root". A call with several paths uses the user of the
	// first.
	User string
}

// Entry describes a path.
type Entry struct {
	Name string // the last element
	Path string // absolute
	Type EntryType
	// Size is in bytes.
	Size int64
	// Mode are the permission bits.
	Mode uint32
	// Owner and Group are names, or numbers where the image has no name.
	Owner, Group string
	Modified     time.Time
	// Target is the absolute target of a symbolic link.
	Target string
	// TargetType and TargetMode describe the link's target; the type is empty if
	// the target does not exist.
	TargetType EntryType
	TargetMode uint32
	// Metadata are the attributes that FileWrite.Metadata attached to the file.
	Metadata map[string]string
}

// EntryType is the type of an entry.
type EntryType string

// The types of entries.
const (
	RegularFile EntryType = "file"
	Directory   EntryType = "directory"
	Symlink     EntryType = "symlink"
	OtherFile   EntryType = "other" // a socket, a pipe, a device
)

// FileWrite holds a file's attributes other than its content.
type FileWrite struct {
	// Mode are permission bits. Default: 0644 for a new file.
	Mode uint32
	// Metadata replaces existing attributes: lower-case keys, printable ASCII,
	// at most 4 KiB.
	Metadata map[string]string
}

// FileChange is a change of one name in a watched directory.
type FileChange struct {
	// Name is relative to the directory.
	Name  string
	Kinds []ChangeKind
	// Entry is the state after the change; nil if the file no longer exists.
	Entry *Entry
}

// ChangeKind is one kind of change of a file.
type ChangeKind string

// The kinds of changes, in the order of FileChange.Kinds.
const (
	Created  ChangeKind = "create"
	Renamed  ChangeKind = "rename" // reported for the old name; the new name is reported as Created
	ModeSet  ChangeKind = "chmod"
	Written  ChangeKind = "write"
	Vanished ChangeKind = "remove"
)
