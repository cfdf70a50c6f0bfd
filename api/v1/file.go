package v1

import (
	"time"

	"github.com/brig-run/brig"
)

// Events of a watch. EventWatching is the first event.
const (
	EventWatching = "watching" // no fields; the watch has begun
	EventChange   = "change"   // Change
)

// EntryHeader is the response header of a download that contains the file's
// Entry in ASCII.
const EntryHeader = "X-Entry"

// MetadataPrefix is the prefix of the upload headers that contain the file's
// metadata.
const MetadataPrefix = "X-Metadata-"

// Entry describes a file, directory or link in a sandbox.
type Entry struct {
	Name     string    `json:"name" doc:"the path's last part"`
	Path     string    `json:"path" doc:"absolute"`
	Type     string    `json:"type" doc:"file, directory, symlink, or other (socket, pipe, device)"`
	Size     int64     `json:"size" doc:"in bytes"`
	Mode     uint32    `json:"mode" doc:"permission bits"`
	Owner    string    `json:"owner" doc:"a name, or a number if the image has no name for it"`
	Group    string    `json:"group" doc:"a name, or a number if the image has no name for it"`
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitempty" doc:"absolute target of a symbolic link"`
	// TargetType and TargetMode describe the target of a link.
	TargetType string            `json:"target_type,omitempty" doc:"the type of a symbolic link's target; omitted if the target does not exist"`
	TargetMode uint32            `json:"target_mode,omitempty" doc:"the permission bits of a symbolic link's target"`
	Metadata   map[string]string `json:"metadata,omitempty" doc:"metadata from the upload of the file"`
}

// Entries is the content of a directory, sorted by path.
type Entries struct {
	Entries []Entry `json:"entries" nullable:"false"`
}

// MakeDirRequest is the request to create a directory and its parents.
type MakeDirRequest struct {
	Path string `json:"path" doc:"absolute, or relative to where the sandbox's commands start (default_cwd, else /workspace); ~ is the user's home" minLength:"1" maxLength:"4096" pattern:"^[^\\x00]*$"`
	User string `json:"user,omitempty" doc:"user whose rights apply, and who owns new files: user (the default), root, or the IDs of another user and its group, such as 1001:1001"`
}

// MoveRequest is the request to rename a file. An existing target is replaced.
type MoveRequest struct {
	From string `json:"from" doc:"absolute, or relative to where the sandbox's commands start (default_cwd, else /workspace); ~ is the user's home" minLength:"1" maxLength:"4096" pattern:"^[^\\x00]*$"`
	To   string `json:"to" doc:"the new path, including the file's name" minLength:"1" maxLength:"4096" pattern:"^[^\\x00]*$"`
	User string `json:"user,omitempty" doc:"user whose rights and home apply, and who owns new parent directories: user (the default), root, or the IDs of another user and its group, such as 1001:1001"`
}

// ComposeRequest is the request to join several files into a new file and to
// remove the originals.
type ComposeRequest struct {
	Sources     []string `json:"source_paths" nullable:"false" doc:"the files to join, in order" minItems:"1" maxItems:"1000" items:"^[^\\x00]+$"`
	Destination string   `json:"destination" doc:"the new file" minLength:"1" maxLength:"4096" pattern:"^[^\\x00]*$"`
	User        string   `json:"user,omitempty" doc:"user whose rights and home apply, and who owns the file: user (the default), root, or the IDs of another user and its group, such as 1001:1001"`
}

// Change is a change to one name in a watched directory.
type Change struct {
	Name  string   `json:"name" doc:"path relative to the directory"`
	Kinds []string `json:"kinds" nullable:"false" doc:"the changes: create, rename (to another path), chmod, write, remove"`
	Entry *Entry   `json:"entry,omitempty" doc:"the file after the change, if it exists"`
}

// WatchEnd is the result of a watch. It has no fields, because a watch ends
// with an error, for example NotFound when the directory was removed, moved or
// replaced.
type WatchEnd struct{}

// FromEntry converts e to its wire type.
func FromEntry(e *brig.Entry) Entry {
	return Entry{
		Name: e.Name, Path: e.Path, Type: string(e.Type), Size: e.Size, Mode: e.Mode, Owner: e.Owner, Group: e.Group,
		Modified: e.Modified, Target: e.Target, TargetType: string(e.TargetType), TargetMode: e.TargetMode, Metadata: e.Metadata,
	}
}

// Domain converts e to its domain type.
func (e Entry) Domain() *brig.Entry {
	return &brig.Entry{
		Name: e.Name, Path: e.Path, Type: brig.EntryType(e.Type), Size: e.Size, Mode: e.Mode, Owner: e.Owner, Group: e.Group,
		Modified: e.Modified, Target: e.Target, TargetType: brig.EntryType(e.TargetType), TargetMode: e.TargetMode, Metadata: e.Metadata,
	}
}

// FromEntries converts a list to its wire type.
func FromEntries(list []*brig.Entry) Entries {
	out := Entries{Entries: []Entry{}}
	for _, e := range list {
		out.Entries = append(out.Entries, FromEntry(e))
	}
	return out
}

// FromChange converts c to its wire type.
func FromChange(c brig.FileChange) Change {
	out := Change{Name: c.Name, Kinds: []string{}}
	for _, k := range c.Kinds {
		out.Kinds = append(out.Kinds, string(k))
	}
	if c.Entry != nil {
		e := FromEntry(c.Entry)
		out.Entry = &e
	}
	return out
}

// Domain converts c to its domain type.
func (c Change) Domain() brig.FileChange {
	out := brig.FileChange{Name: c.Name}
	for _, k := range c.Kinds {
		out.Kinds = append(out.Kinds, brig.ChangeKind(k))
	}
	if c.Entry != nil {
		out.Entry = c.Entry.Domain()
	}
	return out
}
