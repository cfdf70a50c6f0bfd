package wire

// The calls about single files and directories, all with FS as their body. The
// answer to each is Entry frames, as many as there are, and OK. Read's has one
// and the content after it, in FileData frames; what Write writes follows the
// call, in FileData frames with FilesEnd after them; Watch answers with Change
// frames until the connection ends.
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

// FS says which files, and what of them.
type FS struct {
	Path Path
	// To is where Move moves to.
	To *Path `json:",omitempty"`
	// From is what Compose composes Path of.
	From []Path `json:",omitempty"`
	// Depth is how many levels List goes down, and Max how many entries it
	// may have in all.
	Depth, Max int `json:",omitempty"`
	// Offset and Length say what Read reads; a negative Length is up to the
	// end.
	Offset, Length int64 `json:",omitempty"`
	// Mode is what Write gives to the file; 0 keeps what it has.
	Mode uint32 `json:",omitempty"`
	// Metadata is all that the file which Write writes will have.
	Metadata map[string]string `json:",omitempty"`
	// Recursive makes Watch see what is below the directories, too.
	Recursive bool `json:",omitempty"`
}

// Path is a path and whose it is: a relative one begins at Home, and what is
// made there is given to UID and GID.
type Path struct {
	Name     string
	Home     string
	UID, GID uint32
}

// Entry is what there is at a path.
type Entry struct {
	Path         string
	Type         string // as brig.EntryType
	Size         int64
	Mode         uint32
	Owner, Group string
	ModifiedNS   int64             // Unix time
	Target       string            `json:",omitempty"`
	Metadata     map[string]string `json:",omitempty"`
}

// MaxEntry bounds the payload of an Entry frame, in bytes, and half of that of
// a Change. Two paths and the metadata fit, however JSON has to write them.
const MaxEntry = 96 << 10

// Change is what happened to a name below a directory. The first of a watch is
// empty and says that it is on.
type Change struct {
	Name  string
	Kinds []string `json:",omitempty"` // as brig.ChangeKind
	Entry *Entry   `json:",omitempty"`
}
