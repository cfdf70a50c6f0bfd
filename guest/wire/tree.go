package wire

// Calls for whole file trees. The body of Unpack, Pack and Changed is Tree. Unpack is followed by
// Node frames. The Node of a regular file is followed by the content in FileData frames and by
// NodeEnd. FilesEnd follows the last node. Pack responds in the same format, with OK at the end.
// Changed is a Pack of the files at and below Paths that were written since a given time. Quiet has
// Stop as its body and ends every process except the agent.
const (
	OpPack    Op = "pack"
	OpChanged Op = "changed"
	OpUnpack  Op = "unpack"
	OpQuiet   Op = "quiet"
)

// Tree specifies the directory and, for Unpack, the owner of the files.
type Tree struct {
	Dir      string
	UID, GID uint32
	// Sealed means that root owns the files and that they are read-only. All
	// users have the owner's permissions to read and execute.
	Sealed bool `json:",omitempty"`
	// MaxFile is the maximum size of a file that Pack sends, in bytes.
	MaxFile int64 `json:",omitempty"`
	// Paths are the absolute paths that Changed searches. SinceNS is the
	// earliest time of the changes.
	Paths   []string `json:",omitempty"`
	SinceNS int64    `json:",omitempty"` // Unix time
}

// Node is a file, directory or link in a tree. Paths may contain arbitrary
// bytes.
type Node struct {
	Path       []byte
	Type       string // as brig.EntryType
	Mode       uint32
	Size       int64  `json:",omitempty"`
	ModifiedNS int64  `json:",omitempty"` // Unix time
	Target     []byte `json:",omitempty"`
	// Skipped is the reason why Pack does not send the file.
	Skipped string `json:",omitempty"`
}

// Limits of a Node, in bytes and in levels. Files beyond them are skipped.
const (
	MaxNodePath  = 4096
	MaxNodeDepth = 128
	// MaxNode is the maximum payload of a Node frame, in bytes.
	MaxNode = 16 << 10
)
