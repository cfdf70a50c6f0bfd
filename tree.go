package brig

import (
	"context"
	"io"
	"time"
)

// Node is one file, directory or symbolic link of a tree that is copied into an
// instance or out of it. Names and targets are bytes and need not be valid
// text.
type Node struct {
	// Path is relative to the tree's directory, with slashes.
	Path string
	// Type is RegularFile, Directory or Symlink.
	Type EntryType
	// Mode are the permission bits.
	Mode uint32
	// Size is a regular file's size in bytes. In Pack it is the size that the
	// instance announces before it sends the file.
	Size int64
	// Modified is the time of the last write of a regular file.
	Modified time.Time
	// Target is the target of a symbolic link. The host never follows it.
	Target string
	// Skipped is the reason why the path is skipped, for example that it is a
	// device, a socket, or unreadable. If it is set, fields other than Path and
	// Type may be unset.
	Skipped string
}

// Trees copies whole directories. Every path is resolved inside the instance,
// below the directory, without following links.
type Trees interface {
	// Unpack creates the nodes of source below dir, owned by the user; parents
	// come before their children. It replaces existing files. Sealed nodes
	// belong to root and are read-only. Unpack reads a node's reader to its end
	// before put returns.
	Unpack(ctx context.Context, dir string, o UnpackOptions, source func(put func(Node, io.Reader) error) error) error
	// Pack calls on for every node below dir, parents before their children.
	// The reader has the content of a regular file and is nil for other nodes.
	// It is valid only during the call; Pack discards unread content. If on
	// returns an error, Pack stops and returns that error.
	Pack(ctx context.Context, dir string, on func(Node, io.Reader) error) error
	// Changed calls on, like Pack, for files and links at and below absolute paths
	// that were created or written after a time, and for all directories there.
	// Their paths are relative to the root. It skips missing paths and paths behind
	// a link.
	Changed(ctx context.Context, paths []string, since time.Time, on func(Node, io.Reader) error) error
	// Quiet sends SIGTERM to all programs, waits for grace and kills them. The
	// instance continues.
	Quiet(ctx context.Context, grace time.Duration) error
}

// UnpackOptions set the ownership of an unpacked tree.
type UnpackOptions struct {
	// User is the owner: "user" (the default), "root", or numbers.
	User string
	// Sealed makes the tree read-only for all users, and readable for all users
	// where its owner may read.
	Sealed bool
}
