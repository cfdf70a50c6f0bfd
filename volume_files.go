package brig

import (
	"context"
	"io"
	"time"
)

// VolumeService manages volumes. A volume is addressed by name or by ID.
type VolumeService interface {
	// CreateVolume creates an empty volume. With size 0 it has the server's default size. It returns
	// AlreadyExists if the tenant has a volume of the name, and Unimplemented if the server cannot
	// keep volumes.
	CreateVolume(ctx context.Context, name string, size int64) (*Volume, error)
	// Volumes returns the tenant's volumes by Created, then ID.
	Volumes(ctx context.Context) ([]*Volume, error)
	GetVolume(ctx context.Context, ref string) (*Volume, error)
	// RemoveVolume removes a volume. Sandboxes that have mounted it keep it until they end, and it
	// counts against the quota until then. Its name is free at once.
	RemoveVolume(ctx context.Context, ref string) error
	VolumeFiles(ref string) VolumeFiles
}

// VolumeFiles accesses the files of a volume, whether or not a sandbox has mounted it. Paths are
// relative to the root of the volume, with or without a slash at the beginning; links do not lead out
// of the volume. The calls do not depend on the owner and the mode of files.
//
// Methods return NotFound for a missing path, and FailedPrecondition with the field "path" if the
// path has another type than the call needs, or if the volume is full.
type VolumeFiles interface {
	VolumeReader
	VolumeWriter
}

// VolumeReader reads the files of a volume.
type VolumeReader interface {
	// Stat describes the path itself; it does not follow a link.
	Stat(ctx context.Context, path string) (*VolumeEntry, error)
	// List returns the entries of a directory and of its subdirectories, down to depth, sorted by
	// path. It returns FailedPrecondition for more than MaxEntries entries.
	List(ctx context.Context, path string, depth int) ([]*VolumeEntry, error)
	// Read opens a regular file. The caller closes the reader, which returns Entry.Size bytes.
	Read(ctx context.Context, path string) (*VolumeEntry, io.ReadCloser, error)
}

// VolumeWriter changes the files of a volume.
type VolumeWriter interface {
	// MakeDir creates a directory. With Force it creates missing parents, and succeeds if the
	// directory exists; otherwise it returns AlreadyExists.
	MakeDir(ctx context.Context, path string, o VolumeWrite) (*VolumeEntry, error)
	// Write creates a file with the content of r. With Force it creates missing parents, and replaces
	// the content of an existing file; otherwise it returns AlreadyExists. Readers of an existing
	// file can see a part of the new content.
	Write(ctx context.Context, path string, o VolumeWrite, r io.Reader) (*VolumeEntry, error)
	// SetAttributes changes the owner and the mode.
	SetAttributes(ctx context.Context, path string, a VolumeAttributes) (*VolumeEntry, error)
	// Remove removes a path, and all that is below it.
	Remove(ctx context.Context, path string) error
}

// VolumeAttributes are an owner and a mode. For a new file, a missing owner is VolumeOwner, and a
// missing mode is 0644, or 0755 for a directory. Otherwise what is missing stays as it is.
type VolumeAttributes struct {
	UID, GID *uint32
	// Mode are the permission bits.
	Mode *uint32
}

// VolumeOwner is the ID of the user and the group that own the root of a volume and what the API
// creates in it: the default user of sandboxes.
const VolumeOwner = 1000

// VolumeWrite are the options of a call that creates a path.
type VolumeWrite struct {
	VolumeAttributes
	Force bool
}

// VolumeEntry describes a path in a volume.
type VolumeEntry struct {
	Name string    // the last element
	Path string    // begins with a slash
	Type EntryType // Symlink for a link, whatever it leads to
	Size int64     // in bytes
	Mode uint32    // permission bits
	// UID and GID are the owner's IDs.
	UID, GID                    uint32
	Accessed, Modified, Changed time.Time
	// Target is the target of a link as it was written.
	Target string
}
