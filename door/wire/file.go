package wire

import "time"

// The events of a watch. EventWatching is the first.
const (
	EventWatching = "watching" // nothing: the watch is on
	EventChange   = "change"   // Change
)

// EntryHeader is the header of a download that has the file's Entry, in ASCII.
const EntryHeader = "X-Entry"

// MetadataPrefix begins the headers of an upload that are the file's metadata.
const MetadataPrefix = "X-Metadata-"

// Entry is what there is at a path of a sandbox.
type Entry struct {
	Name     string            `json:"name" doc:"the path's last part"`
	Path     string            `json:"path" doc:"absolute"`
	Type     string            `json:"type" doc:"file, directory, symlink or other: a socket, a pipe, a device"`
	Size     int64             `json:"size" doc:"in bytes"`
	Mode     uint32            `json:"mode" doc:"permission bits"`
	Owner    string            `json:"owner" doc:"a name, or a number where the image has none"`
	Group    string            `json:"group" doc:"a name, or a number where the image has none"`
	Modified time.Time         `json:"modified"`
	Target   string            `json:"target,omitempty" doc:"where a symbolic link leads, absolute"`
	Metadata map[string]string `json:"metadata,omitempty" doc:"what was given with the file when it was written"`
}

// Entries is what there is in a directory, sorted by path.
type Entries struct {
	Entries []Entry `json:"entries" nullable:"false"`
}

// MakeDirRequest asks for a directory, and those above it.
type MakeDirRequest struct {
	Path string `json:"path" doc:"absolute, or relative to the user's home"`
	User string `json:"user,omitempty" doc:"who owns what is made: user (the default) or root"`
}

// MoveRequest asks for another name. What has it is replaced.
type MoveRequest struct {
	From string `json:"from" doc:"absolute, or relative to the user's home"`
	To   string `json:"to" doc:"the new path, not a directory to move into"`
	User string `json:"user,omitempty" doc:"whose home is meant, and who owns the directories made above the new name: user (the default) or root"`
}

// ComposeRequest asks for one file made of several, which are removed.
type ComposeRequest struct {
	Sources     []string `json:"source_paths" nullable:"false" doc:"the files, in the order of their contents"`
	Destination string   `json:"destination" doc:"the file that is made"`
	User        string   `json:"user,omitempty" doc:"whose home is meant, and who owns the file: user (the default) or root"`
}

// Change is what happened to one name in a directory that is watched.
type Change struct {
	Name  string   `json:"name" doc:"relative to the directory"`
	Kinds []string `json:"kinds" nullable:"false" doc:"of create, rename (away), chmod, write and remove, those that happened"`
	Entry *Entry   `json:"entry,omitempty" doc:"what is there now, if anything is"`
}

// WatchEnd has no fields: a watch ends without an error only when there is
// nothing left to watch.
type WatchEnd struct{}
