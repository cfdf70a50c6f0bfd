package brig

import (
	"context"
	"io"
	"time"
)

// Workspace is a directory that outlives sandboxes. It is a line of versions,
// none of which ever changes.
type Workspace struct {
	// Name is unique among the tenant's workspaces; see ValidName.
	Name string
	// ID tells it from others of its name, before and after.
	ID string
	// Store is where it is kept: "local" or "s3".
	Store   string
	Created time.Time
	// Head is the newest version, nil before the first.
	Head *WorkspaceVersion
}

// WorkspaceVersion is what is known of one version.
type WorkspaceVersion struct {
	// Number counts from 1.
	Number int
	// Digest is that of all names, modes and contents. Versions that hold the
	// same have the same.
	Digest string
	// Base is the version that it was made from, 0 for none.
	Base  int
	Files int
	// Size is the sum of the files' sizes, in bytes.
	Size    int64
	Created time.Time
	// Actor made it, out of Sandbox, if it came from one.
	Actor   string
	Sandbox ID `json:",omitempty"`
	// Restored is the version whose content this is again.
	Restored int `json:",omitempty"`
	// Captured is how many files and links from outside /workspace are with it,
	// CapturedSize their bytes. No sandbox begins with them.
	Captured     int   `json:",omitempty"`
	CapturedSize int64 `json:",omitempty"`
}

// WorkspaceMode says what becomes of what a sandbox writes in its workspace.
type WorkspaceMode string

// The modes of a workspace in a sandbox.
const (
	// WorkspaceReadOnly lets nobody write, and nothing is kept.
	WorkspaceReadOnly WorkspaceMode = "read_only"
	// WorkspaceOverlay keeps what is written in the sandbox alone, until
	// somebody commits it.
	WorkspaceOverlay WorkspaceMode = "overlay"
	// WorkspaceDirect makes a version of what was written when the sandbox
	// ends, too.
	WorkspaceDirect WorkspaceMode = "direct"
)

// WorkspaceModes lists every mode.
var WorkspaceModes = []WorkspaceMode{WorkspaceReadOnly, WorkspaceOverlay, WorkspaceDirect}

// WorkspaceUse says which workspace a sandbox has at /workspace, and what it
// may do with it.
type WorkspaceUse struct {
	// Name is the workspace's. Empty is none.
	Name string `json:",omitempty"`
	// Mode is one of WorkspaceModes. Default overlay.
	Mode WorkspaceMode `json:",omitempty"`
	// Prefixes are the paths, relative to /workspace, at and below which a
	// commit may change something. Default everywhere.
	Prefixes []string `json:",omitzero"`
	// Capture are absolute paths outside /workspace. What the sandbox has
	// written at and below them comes along with a commit. Default none.
	Capture []string `json:",omitzero"`
	// Version is the one that the sandbox begins with. Default the newest. In
	// a sandbox that exists it is what the next commit is compared with.
	Version int `json:",omitempty"`
	// ID is the workspace's. The engine fills it in.
	ID string `json:",omitempty"`
}

// WorkspaceCommit is what became of a commit.
type WorkspaceCommit struct {
	// Name is the workspace's.
	Name string
	// Version is the newest now. It is the one before if nothing had changed.
	Version *WorkspaceVersion
	// Changes are those that were made, by path, at most MaxWorkspaceTold of
	// them; Changed counts all.
	Changes []WorkspaceChange
	Changed int
	// Skipped are what the version does not have, though the sandbox does, and
	// why; as many as of Changes. Passed counts all.
	Skipped []WorkspaceSkip
	Passed  int
	// Captured are the files and links from outside /workspace that are with the
	// version, at most MaxWorkspaceCaptured.
	Captured []WorkspaceFile `json:",omitzero"`
	// Error says why nothing was committed at a sandbox's end.
	Error *ProgramError `json:",omitempty"`
}

// WorkspaceChange is one path in which two versions differ.
type WorkspaceChange struct {
	// Path is relative to /workspace. What is not UTF-8 in it is written as
	// \xNN.
	Path string
	Kind WorkspaceChangeKind
	Type EntryType // of what is there after, or was before a removal
	// Size is that of what is there after.
	Size int64
}

// WorkspaceChangeKind is how a path differs.
type WorkspaceChangeKind string

// The kinds of changes of a workspace.
const (
	WorkspaceAdded   WorkspaceChangeKind = "added"
	WorkspaceChanged WorkspaceChangeKind = "changed"
	WorkspaceRemoved WorkspaceChangeKind = "removed"
)

// WorkspaceFile is a file or a link of a version.
type WorkspaceFile struct {
	// Path is where it was in the sandbox, absolute and written as in
	// WorkspaceChange.
	Path   string
	Type   EntryType
	Mode   uint32
	Size   int64
	Target string `json:",omitempty"` // of a link
}

// WorkspaceSkip is a path that was left out of a version, and why. It is
// relative to /workspace, or absolute where something was to be captured.
type WorkspaceSkip struct{ Path, Reason string }

// The bounds of a workspace.
const (
	MaxWorkspaceFiles  = 100_000  // files, directories and links of a version
	MaxWorkspaceFile   = 16 * GiB // bytes of one file
	MaxWorkspaceSize   = 64 * GiB // bytes of a version
	MaxWorkspaceTold   = 1000     // paths that an answer names
	MaxWorkspacePrefix = 64       // prefixes of a sandbox, and paths to capture

	MaxWorkspaceCaptured     = 1000      // files and links from outside /workspace
	MaxWorkspaceCapturedSize = 256 * MiB // their bytes
)

// WorkspaceService is what a Service does with workspaces.
type WorkspaceService interface {
	// CreateWorkspace makes an empty workspace. A taken name is AlreadyExists.
	CreateWorkspace(ctx context.Context, name string) (*Workspace, error)
	// Workspaces lists the tenant's, by name.
	Workspaces(ctx context.Context) ([]*Workspace, error)
	// RemoveWorkspace forgets a workspace with all versions. Sandboxes that
	// have it keep their files, and cannot commit them any more.
	RemoveWorkspace(ctx context.Context, name string) error
	// WorkspaceVersions lists a workspace's versions, newest first.
	WorkspaceVersions(ctx context.Context, name string) ([]*WorkspaceVersion, error)
	// DiffWorkspace lists the paths in which two versions differ. Version 0 is
	// the empty one before the first.
	DiffWorkspace(ctx context.Context, name string, from, to int) ([]WorkspaceChange, error)
	// WorkspaceFiles lists the files and links of a version at and below an
	// absolute path, by path: those in /workspace and those that were captured
	// outside. Version 0 is the newest, an empty path everywhere.
	WorkspaceFiles(ctx context.Context, name string, version int, path string) ([]WorkspaceFile, error)
	// ReadWorkspaceFile opens a file of a version, by its path as WorkspaceFiles
	// has it, and says how many bytes it has. The caller closes it. A content
	// that is not what was written fails before its end.
	ReadWorkspaceFile(ctx context.Context, name string, version int, path string) (int64, io.ReadCloser, error)
	// RestoreWorkspace makes a new version with the content of an old one.
	RestoreWorkspace(ctx context.Context, name string, version int) (*WorkspaceVersion, error)
	// CommitWorkspace makes a version of what a sandbox has at /workspace: its
	// changes since the version that it began with, on top of the newest. If
	// somebody else has changed one of these paths meanwhile it is
	// FailedPrecondition, and nothing has changed.
	CommitWorkspace(ctx context.Context, sandbox string) (*WorkspaceCommit, error)
}
