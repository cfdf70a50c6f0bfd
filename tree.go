package brig

import (
	"context"
	"io"
	"time"
)

// Node is one file, directory or symbolic link of a tree that is carried into
// a machine or out of it. Names and targets are bytes, and need not be text.
type Node struct {
	// Path is relative to the tree's directory, with slashes.
	Path string
	// Type is RegularFile, Directory or Symlink.
	Type EntryType
	// Mode are the permission bits.
	Mode uint32
	// Size is a regular file's, in bytes. On the way out it is what the
	// machine says before it sends the file.
	Size int64
	// Modified is when a regular file was written last.
	Modified time.Time
	// Target is what a symbolic link says. Nobody outside follows it.
	Target string
	// Skipped is why what is at the path does not come along: it is a device,
	// a socket, or cannot be read. Then nothing else of it is known.
	Skipped string
}

// Trees carries whole directories. Every path is looked up inside the machine,
// below the directory, and no link is followed on the way.
type Trees interface {
	// Unpack makes below dir what source puts, owned by the user, parents
	// before what is in them. A file that is there is replaced. What is
	// sealed belongs to root and is nobody's to write. A reader is read to
	// its end before put returns.
	Unpack(ctx context.Context, dir string, o UnpackOptions, source func(put func(Node, io.Reader) error) error) error
	// Pack calls on for all that is below dir, parents before what is in
	// them. The reader is a regular file's content, nil for everything else,
	// and ends with the call; what it was not read to is passed over. An error
	// of on ends Pack, which returns it.
	Pack(ctx context.Context, dir string, on func(Node, io.Reader) error) error
	// Changed calls on as Pack does for files and links at and below absolute
	// paths that were made or written since a moment, and for all directories
	// there. Their paths are relative to the root. What is not there, or behind
	// a link, is skipped.
	Changed(ctx context.Context, paths []string, since time.Time, on func(Node, io.Reader) error) error
	// Quiet asks all programs to end, waits for grace and kills them. The
	// machine goes on.
	Quiet(ctx context.Context, grace time.Duration) error
}

// UnpackOptions say whose a tree will be.
type UnpackOptions struct {
	// User owns it: "user" (the default), "root", or numbers.
	User string
	// Sealed makes it nobody's to write, and everybody's to read what its
	// owner may.
	Sealed bool
}
