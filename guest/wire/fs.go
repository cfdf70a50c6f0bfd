package wire

// Calls for single files and directories. Their body is FS. The response to each is zero or more
// Entry frames and OK. The response to Read has one Entry, and then the content in FileData frames.
// The content for Write follows the call, in FileData frames and a final FilesEnd. Watch returns
// Change frames until the connection ends.
const (
	OpStat    Op = "stat"
	OpList    Op = "list"
	OpMakeDir Op = "mkdir"
	OpMove    Op = "move"
	OpRemove  Op = "remove"
	OpRead    Op = "read"
	OpWrite   Op = "write"
	OpCompose Op = "compose"
	OpWatch   Op = "watch"
)

// FS specifies the files of a call, and its options.
type FS struct {
	Path Path
	// To is the target of Move.
	To *Path `json:",omitempty"`
	// From lists the files that Compose joins into Path.
	From []Path `json:",omitempty"`
	// Depth is the number of levels that List descends. Max is the maximum
	// number of entries that List may return.
	Depth, Max int `json:",omitempty"`
	// Offset and Length are the range that Read returns. A negative Length
	// means up to the end of the file.
	Offset, Length int64 `json:",omitempty"`
	// Mode is the mode that Write sets on the file. 0 keeps the current mode.
	Mode uint32 `json:",omitempty"`
	// Metadata is the complete metadata that Write sets on the file.
	Metadata map[string]string `json:",omitempty"`
	// Recursive makes Watch include the subdirectories.
	Recursive bool `json:",omitempty"`
}

// Path is a path and the account of the request. A relative path starts at Home. The call has the
// permissions of UID and GID; if it has several paths, the ids of FS.Path apply.
type Path struct {
	Name     string
	Home     string
	UID, GID uint32
}

// Entry describes a file.
type Entry struct {
	Path         string
	Type         string // as brig.EntryType
	Size         int64
	Mode         uint32
	Owner, Group string
	ModifiedNS   int64  // Unix time
	Target       string `json:",omitempty"`
	// TargetType and TargetMode describe the target of a link, if the target
	// exists.
	TargetType string            `json:",omitempty"`
	TargetMode uint32            `json:",omitempty"`
	Metadata   map[string]string `json:",omitempty"`
}

// MaxEntry is the maximum payload of an Entry frame, in bytes. The maximum for
// a Change frame is twice that. Two paths and the metadata fit, even if JSON
// escapes them.
const MaxEntry = 96 << 10

// Change is a change of a name below a directory. The first Change of a watch
// is empty and means that the watch is active.
type Change struct {
	Name  string
	Kinds []string `json:",omitempty"` // as brig.ChangeKind
	Entry *Entry   `json:",omitempty"`
}
