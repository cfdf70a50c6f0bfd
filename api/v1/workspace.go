package v1

import (
	"fmt"
	"strconv"
	"time"

	"github.com/brig-run/brig"
)

// WorkspaceUse describes the workspace that is mounted at /workspace in a
// sandbox.
type WorkspaceUse struct {
	Name     string   `json:"name" doc:"the workspace's name" pattern:"^[a-z0-9][a-z0-9-]{0,62}$"`
	Mode     string   `json:"mode,omitempty" doc:"read_only, overlay (the default: only a commit saves changes) or direct (changes are saved automatically)" enum:"read_only,overlay,direct"`
	Prefixes []string `json:"prefixes,omitempty" doc:"paths relative to /workspace; a commit includes only changes at and below them; default: all"`
	Capture  []string `json:"capture,omitempty" doc:"absolute paths outside /workspace; a commit includes changes at and below them; default none"`
	Version  int      `json:"version,omitempty" doc:"version to start with; default: the newest. In responses: the base of the next commit" minimum:"0"`
	ID       string   `json:"id,omitempty" doc:"in responses: ID of the workspace"`
}

// WorkspaceRequest is the request to create a workspace.
type WorkspaceRequest struct {
	Name string `json:"name" doc:"1 to 63 of a-z, 0-9 and -, unique among the tenant's workspaces" pattern:"^[a-z0-9][a-z0-9-]{0,62}$"`
}

// RestoreRequest is the request to create a new version from an old one.
type RestoreRequest struct {
	Version int `json:"version" doc:"version to restore" minimum:"1"`
}

// Workspace is a directory that outlives sandboxes.
type Workspace struct {
	Name    string            `json:"name"`
	ID      string            `json:"id"`
	Store   string            `json:"store" doc:"storage: local or s3"`
	Created time.Time         `json:"created"`
	Head    *WorkspaceVersion `json:"head,omitempty" doc:"newest version; omitted before the first"`
}

// Workspaces is the list of a tenant's workspaces.
type Workspaces struct {
	Workspaces []Workspace `json:"workspaces" nullable:"false"`
}

// WorkspaceVersion is the description of an immutable version.
type WorkspaceVersion struct {
	Number   int       `json:"number"`
	Digest   string    `json:"digest" doc:"digest of all names, modes and contents"`
	Base     int       `json:"base" doc:"base version; 0 for none"`
	Files    int       `json:"files"`
	Size     int64     `json:"size" doc:"bytes of all files"`
	Created  time.Time `json:"created"`
	Actor    string    `json:"actor"`
	Sandbox  string    `json:"sandbox,omitempty" doc:"ID of the sandbox that created it"`
	Restored int       `json:"restored,omitempty" doc:"version that this one restored"`
	Captured int       `json:"captured,omitempty" doc:"number of captured files and links from outside /workspace"`
	Outside  int64     `json:"captured_size,omitempty" doc:"their size in bytes"`
}

// WorkspaceVersions is the list of a workspace's versions, newest first.
type WorkspaceVersions struct {
	Versions []WorkspaceVersion `json:"versions" nullable:"false"`
}

// WorkspaceChange is a path that differs between two versions.
type WorkspaceChange struct {
	Path string `json:"path" doc:"relative to /workspace; bytes that are not UTF-8 as \\xNN"`
	Kind string `json:"kind" doc:"added, changed or removed"`
	Type string `json:"type" doc:"file, directory or symlink"`
	Size int64  `json:"size"`
}

// WorkspaceDiff lists the paths that differ between two versions.
type WorkspaceDiff struct {
	Changes []WorkspaceChange `json:"changes" nullable:"false"`
}

// WorkspaceFile is a file or a link of a version.
type WorkspaceFile struct {
	Path   string `json:"path" doc:"absolute path in the sandbox; bytes that are not UTF-8 as \\xNN"`
	Type   string `json:"type" doc:"file or symlink"`
	Mode   string `json:"mode" doc:"permission bits in octal digits"`
	Size   int64  `json:"size"`
	Target string `json:"target,omitempty" doc:"target of a symbolic link"`
}

// WorkspaceFiles is the list of a version's files.
type WorkspaceFiles struct {
	Files []WorkspaceFile `json:"files" nullable:"false"`
}

// WorkspaceSkip is a path that was left out of a version, and the reason.
type WorkspaceSkip struct {
	Path   string `json:"path" doc:"path relative to /workspace, or absolute for captures"`
	Reason string `json:"reason"`
}

// WorkspaceCommit is the result of a commit.
type WorkspaceCommit struct {
	Name    string            `json:"name"`
	Version *WorkspaceVersion `json:"version,omitempty" doc:"newest version; the previous one if nothing changed"`
	Changes []WorkspaceChange `json:"changes" nullable:"false" doc:"changes in the version, the first 1000"`
	Changed int               `json:"changed" doc:"total number"`
	Skipped []WorkspaceSkip   `json:"skipped" nullable:"false" doc:"files that were skipped, the first 1000"`
	Passed  int               `json:"passed" doc:"total number"`
	Files   []WorkspaceFile   `json:"captured,omitempty" doc:"captured files and links from outside /workspace"`
	Error   *ProgramError     `json:"error,omitempty" doc:"why the changes were not saved at the end of the sandbox"`
}

// FromWorkspaceUse converts u to its wire type. It returns nil if u is empty.
func FromWorkspaceUse(u brig.WorkspaceUse) *WorkspaceUse {
	if u.Name == "" && u.Mode == "" && u.Version == 0 && len(u.Prefixes)+len(u.Capture) == 0 {
		return nil
	}
	return &WorkspaceUse{Name: u.Name, Mode: string(u.Mode), Prefixes: u.Prefixes, Capture: u.Capture, Version: u.Version, ID: u.ID}
}

// Domain converts u to its domain type.
func (u *WorkspaceUse) Domain() brig.WorkspaceUse {
	if u == nil {
		return brig.WorkspaceUse{}
	}
	return brig.WorkspaceUse{Name: u.Name, Mode: brig.WorkspaceMode(u.Mode), Prefixes: u.Prefixes, Capture: u.Capture, Version: u.Version, ID: u.ID}
}

// FromWorkspace converts w to its wire type.
func FromWorkspace(w *brig.Workspace) Workspace {
	return Workspace{Name: w.Name, ID: w.ID, Store: w.Store, Created: w.Created, Head: FromWorkspaceVersion(w.Head)}
}

// Domain converts w to its domain type.
func (w Workspace) Domain() *brig.Workspace {
	return &brig.Workspace{Name: w.Name, ID: w.ID, Store: w.Store, Created: w.Created, Head: w.Head.Domain()}
}

// FromWorkspaceVersion converts v to its wire type. It returns nil for nil.
func FromWorkspaceVersion(v *brig.WorkspaceVersion) *WorkspaceVersion {
	if v == nil {
		return nil
	}
	return &WorkspaceVersion{
		Number: v.Number, Digest: v.Digest, Base: v.Base, Files: v.Files, Size: v.Size,
		Created: v.Created, Actor: v.Actor, Sandbox: string(v.Sandbox), Restored: v.Restored,
		Captured: v.Captured, Outside: v.CapturedSize,
	}
}

// Domain converts v to its domain type. It returns nil for nil.
func (v *WorkspaceVersion) Domain() *brig.WorkspaceVersion {
	if v == nil {
		return nil
	}
	return &brig.WorkspaceVersion{
		Number: v.Number, Digest: v.Digest, Base: v.Base, Files: v.Files, Size: v.Size,
		Created: v.Created, Actor: v.Actor, Sandbox: brig.ID(v.Sandbox), Restored: v.Restored,
		Captured: v.Captured, CapturedSize: v.Outside,
	}
}

// FromWorkspaceChanges converts list to its wire type.
func FromWorkspaceChanges(list []brig.WorkspaceChange) []WorkspaceChange {
	out := []WorkspaceChange{}
	for _, c := range list {
		out = append(out, WorkspaceChange{Path: c.Path, Kind: string(c.Kind), Type: string(c.Type), Size: c.Size})
	}
	return out
}

// ToWorkspaceChanges is the inverse of FromWorkspaceChanges.
func ToWorkspaceChanges(list []WorkspaceChange) []brig.WorkspaceChange {
	out := []brig.WorkspaceChange{}
	for _, c := range list {
		out = append(out, brig.WorkspaceChange{Path: c.Path, Kind: brig.WorkspaceChangeKind(c.Kind), Type: brig.EntryType(c.Type), Size: c.Size})
	}
	return out
}

// FromWorkspaceFiles converts list to its wire type.
func FromWorkspaceFiles(list []brig.WorkspaceFile) WorkspaceFiles {
	out := WorkspaceFiles{Files: []WorkspaceFile{}}
	for _, f := range list {
		out.Files = append(out.Files, WorkspaceFile{Path: f.Path, Type: string(f.Type), Mode: fmt.Sprintf("%04o", f.Mode), Size: f.Size, Target: f.Target})
	}
	return out
}

// Domain converts w to its domain type.
func (w WorkspaceFiles) Domain() []brig.WorkspaceFile {
	out := []brig.WorkspaceFile{}
	for _, f := range w.Files {
		mode, _ := strconv.ParseUint(f.Mode, 8, 32) // 0 for an invalid mode, which servers never send
		out = append(out, brig.WorkspaceFile{Path: f.Path, Type: brig.EntryType(f.Type), Mode: uint32(mode), Size: f.Size, Target: f.Target})
	}
	return out
}

// FromWorkspaceCommit converts c to its wire type. It returns nil for nil.
func FromWorkspaceCommit(c *brig.WorkspaceCommit) *WorkspaceCommit {
	if c == nil {
		return nil
	}
	out := &WorkspaceCommit{
		Name: c.Name, Version: FromWorkspaceVersion(c.Version), Changes: FromWorkspaceChanges(c.Changes), Changed: c.Changed,
		Skipped: []WorkspaceSkip{}, Passed: c.Passed, Files: FromWorkspaceFiles(c.Captured).Files,
	}
	for _, s := range c.Skipped {
		out.Skipped = append(out.Skipped, WorkspaceSkip(s))
	}
	if e := c.Error; e != nil {
		out.Error = &ProgramError{Code: e.Code, Name: e.Name, Message: e.Message, Traceback: e.Traceback, Hint: e.Hint}
	}
	return out
}

// Domain converts c to its domain type. It returns nil for nil.
func (c *WorkspaceCommit) Domain() *brig.WorkspaceCommit {
	if c == nil {
		return nil
	}
	out := &brig.WorkspaceCommit{
		Name: c.Name, Version: c.Version.Domain(), Changes: ToWorkspaceChanges(c.Changes), Changed: c.Changed, Passed: c.Passed,
		Captured: WorkspaceFiles{c.Files}.Domain(),
	}
	for _, s := range c.Skipped {
		out.Skipped = append(out.Skipped, brig.WorkspaceSkip(s))
	}
	if e := c.Error; e != nil {
		out.Error = &brig.ProgramError{Code: e.Code, Name: e.Name, Message: e.Message, Traceback: e.Traceback, Hint: e.Hint}
	}
	return out
}
