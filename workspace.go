package brig

import (
	"context"
	"io"
	"time"
)

// Workspace is a directory that outlives sandboxes, stored as a sequence of
// immutable versions.
type Workspace struct {
	// Name is unique among the tenant's workspaces; see ValidName.
	Name string
	// ID distinguishes the workspace from earlier and later ones of the same
	// name.
	ID string
	// Store is the storage: "local" or "s3".
	Store   string
	Created time.Time
	// Head is the newest version; nil before the first.
	Head *WorkspaceVersion
}

// WorkspaceVersion describes one version.
type WorkspaceVersion struct {
	// Number is the number of the version, from 1.
	Number int
	// Digest is the digest of all names, modes and contents. Versions with equal
	// contents have equal digests.
	Digest string
	// Base is the number of the version that this one is based on; 0 for none.
	Base  int
	Files int
	// Size is the sum of the files' sizes, in bytes.
	Size    int64
	Created time.Time
	// Actor is the actor that created the version. Sandbox is the sandbox that
	// it was committed from, if any.
	Actor   string
	Sandbox ID `json:",omitempty"`
	// Restored is the number of the old version that this one restores, if any.
	Restored int `json:",omitempty"`
	// Captured is the number of files and links in the version that are from
	// outside /workspace, and CapturedSize is their size in bytes. Such files are
	// not restored into new sandboxes.
	Captured     int   `json:",omitempty"`
	CapturedSize int64 `json:",omitempty"`
}

// WorkspaceMode determines whether a sandbox's changes to its workspace are
// kept.
type WorkspaceMode string

// The modes of a workspace in a sandbox.
const (
	// WorkspaceReadOnly allows no writes.
	WorkspaceReadOnly WorkspaceMode = "read_only"
	// WorkspaceOverlay keeps changes in the sandbox only, until a call commits
	// them.
	WorkspaceOverlay WorkspaceMode = "overlay"
	// WorkspaceDirect commits the changes when the sandbox ends, for any reason,
	// and every few minutes while it runs.
	WorkspaceDirect WorkspaceMode = "direct"
)

// WorkspaceModes lists every mode.
var WorkspaceModes = []WorkspaceMode{WorkspaceReadOnly, WorkspaceOverlay, WorkspaceDirect}

// WorkspaceUse is a sandbox's mount of a workspace at /workspace.
type WorkspaceUse struct {
	// Name is the name of the workspace. Empty means none.
	Name string `json:",omitempty"`
	// Mode is one of WorkspaceModes. Default: overlay.
	Mode WorkspaceMode `json:",omitempty"`
	// Prefixes are the paths, relative to /workspace, at and below which a commit
	// may make changes. Default: all paths.
	Prefixes []string `json:",omitzero"`
	// Capture lists absolute paths outside /workspace. A commit includes the
	// sandbox's changes at and below these paths. Default: none.
	Capture []string `json:",omitzero"`
	// Version is the version that the sandbox starts with. Default: the newest.
	// For an existing sandbox it is the base of the next commit.
	Version int `json:",omitempty"`
	// ID is the ID of the workspace. The engine sets it.
	ID string `json:",omitempty"`
}

// WorkspaceCommit is the result of a commit.
type WorkspaceCommit struct {
	// Name is the name of the workspace.
	Name string
	// Version is the newest version after the commit. It is the previous
	// version if the sandbox made no changes.
	Version *WorkspaceVersion
	// Changes are the committed changes by path, at most MaxWorkspacePaths. Changed
	// is the total number of changes.
	Changes []WorkspaceChange
	Changed int
	// Skipped are the paths of the sandbox that are not in the version, with the
	// reasons, limited like Changes. Passed is the total number of such paths.
	Skipped []WorkspaceSkip
	Passed  int
	// Captured are the files and links from outside /workspace in the version, at
	// most MaxWorkspaceCaptured.
	Captured []WorkspaceFile `json:",omitzero"`
	// Error is the reason why the commit at a sandbox's end failed.
	Error *ProgramError `json:",omitempty"`
}

// WorkspaceChange is one path at which two versions differ.
type WorkspaceChange struct {
	// Path is relative to /workspace. Bytes that are not UTF-8 are written as
	// \xNN.
	Path string
	Kind WorkspaceChangeKind
	Type EntryType // type after the change, or before a removal
	// Size is the size after the change.
	Size int64
}

// WorkspaceChangeKind is the kind of a change between two versions.
type WorkspaceChangeKind string

// The kinds of changes of a workspace.
const (
	WorkspaceAdded   WorkspaceChangeKind = "added"
	WorkspaceChanged WorkspaceChangeKind = "changed"
	WorkspaceRemoved WorkspaceChangeKind = "removed"
)

// WorkspaceFile is a file or a link of a version.
type WorkspaceFile struct {
	// Path is the absolute path in the sandbox, in the form of
	// WorkspaceChange.Path.
	Path   string
	Type   EntryType
	Mode   uint32
	Size   int64
	Target string `json:",omitempty"` // target of a symbolic link
}

// WorkspaceSkip is a path that is not in a version, with the reason. The path
// is relative to /workspace, or absolute for captured files.
type WorkspaceSkip struct{ Path, Reason string }

// Limits on a workspace.
const (
	MaxWorkspaceFiles  = 100_000  // files, directories and links of a version
	MaxWorkspaceNames  = 32 * MiB // bytes of their paths and of the targets of links
	MaxWorkspaceFile   = 16 * GiB // bytes of one file
	MaxWorkspaceSize   = 64 * GiB // bytes of a version
	MaxWorkspacePaths  = 1000     // paths in a response
	MaxWorkspacePrefix = 64       // prefixes of a sandbox, and paths to capture

	MaxWorkspaceCaptured     = 1000      // files and links from outside /workspace
	MaxWorkspaceCapturedSize = 256 * MiB // their total bytes
)

// WorkspaceService manages workspaces: directories that outlive sandboxes.
type WorkspaceService interface {
	WorkspaceManager
	WorkspaceVersionService
}

// WorkspaceManager creates, lists and deletes workspaces.
type WorkspaceManager interface {
	// CreateWorkspace creates an empty workspace. It returns AlreadyExists if
	// the name is taken.
	CreateWorkspace(ctx context.Context, name string) (*Workspace, error)
	// Workspaces lists the tenant's workspaces by name.
	Workspaces(ctx context.Context) ([]*Workspace, error)
	// RemoveWorkspace deletes a workspace with all versions. Sandboxes that have
	// it mounted keep their files and can no longer commit them.
	RemoveWorkspace(ctx context.Context, name string) error
}

// WorkspaceVersionService reads and creates versions of a workspace.
type WorkspaceVersionService interface {
	// WorkspaceVersions lists a workspace's versions, newest first.
	WorkspaceVersions(ctx context.Context, name string) ([]*WorkspaceVersion, error)
	// DiffWorkspace lists the paths at which two versions differ. Version 0 is
	// the empty one before the first.
	DiffWorkspace(ctx context.Context, name string, from, to int) ([]WorkspaceChange, error)
	// WorkspaceFiles lists the files and links of a version at and below an
	// absolute path, by path: those in /workspace and those captured outside it.
	// Version 0 means the newest; an empty path means all files.
	WorkspaceFiles(ctx context.Context, name string, version int, path string) ([]WorkspaceFile, error)
	// ReadWorkspaceFile opens a file of a version by a path from WorkspaceFiles,
	// and returns its size. The caller closes the reader. If the content does not
	// match its digest, reading fails before the end.
	ReadWorkspaceFile(ctx context.Context, name string, version int, path string) (int64, io.ReadCloser, error)
	// RestoreWorkspace creates a new version with the content of an old one.
	RestoreWorkspace(ctx context.Context, name string, version int) (*WorkspaceVersion, error)
	// CommitWorkspace creates a version from a sandbox's /workspace: its changes
	// since the version that it started from, applied to the newest. If a newer
	// version also changed one of these paths, CommitWorkspace returns
	// FailedPrecondition and creates no version.
	CommitWorkspace(ctx context.Context, sandbox string) (*WorkspaceCommit, error)
}
