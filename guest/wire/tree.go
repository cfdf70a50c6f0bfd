package wire

// The calls about whole trees, with Tree as their body. Unpack is followed by
// Node frames, each of a regular file by its content in FileData frames and
// NodeEnd, and by FilesEnd after the last; Pack is answered in the same way,
// with OK at the end, and Changed is a Pack of what was written at and below
// Paths since a moment. Quiet has Stop as its body: everything but the agent
// ends.
const (
	OpPack    Op = "pack"
	OpChanged Op = "changed"
	OpUnpack  Op = "unpack"
	OpQuiet   Op = "quiet"
)

// Tree says which directory, and of Unpack whose its files will be.
type Tree struct {
	Dir      string
	UID, GID uint32
	// Sealed gives them to root, takes away the right to write, and lets
	// everybody do what their owner might.
	Sealed bool `json:",omitempty"`
	// MaxFile is how large a file may be that Pack sends, in bytes.
	MaxFile int64 `json:",omitempty"`
	// Paths are where Changed looks, absolute, and SinceNS since when.
	Paths   []string `json:",omitempty"`
	SinceNS int64    `json:",omitempty"` // Unix time
}

// Node is one thing in a tree. Names are bytes and need not be text.
type Node struct {
	Path       []byte
	Type       string // as brig.EntryType
	Mode       uint32
	Size       int64  `json:",omitempty"`
	ModifiedNS int64  `json:",omitempty"` // Unix time
	Target     []byte `json:",omitempty"`
	// Skipped is why Pack does not send it.
	Skipped string `json:",omitempty"`
}

// The bounds of a Node, in bytes and in levels. What is beyond them is skipped.
const (
	MaxNodePath  = 4096
	MaxNodeDepth = 128
	// MaxNode bounds the payload of its frame.
	MaxNode = 16 << 10
)
