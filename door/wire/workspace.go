package wire

import (
	"fmt"
	"strconv"
	"time"

	"github.com/brig-run/brig"
)

// WorkspaceUse says which workspace a sandbox has at /workspace.
type WorkspaceUse struct {
	Name     string   `json:"name" doc:"the workspace's name"`
	Mode     string   `json:"mode,omitempty" doc:"read_only, overlay (the default: what is written is kept by a commit) or direct (at the sandbox's end, too)"`
	Prefixes []string `json:"prefixes,omitempty" doc:"paths relative to /workspace, at and below which a commit may change something; default everywhere"`
	Capture  []string `json:"capture,omitempty" doc:"absolute paths outside /workspace, at and below which what the sandbox has written comes along with a commit; default none"`
	Version  int      `json:"version,omitempty" doc:"the version to begin with; default the newest. In an answer, what the next commit is compared with"`
	ID       string   `json:"id,omitempty" doc:"in answers: tells the workspace from others of its name"`
}

// WorkspaceRequest makes a workspace.
type WorkspaceRequest struct {
	Name string `json:"name" doc:"1 to 63 of a-z, 0-9 and -, unique among the tenant's workspaces"`
}

// RestoreRequest makes a new version of an old one.
type RestoreRequest struct {
	Version int `json:"version" doc:"whose content it is"`
}

// Workspace is a directory that outlives sandboxes.
type Workspace struct {
	Name    string            `json:"name"`
	ID      string            `json:"id"`
	Store   string            `json:"store" doc:"where it is kept: local or s3"`
	Created time.Time         `json:"created"`
	Head    *WorkspaceVersion `json:"head,omitempty" doc:"the newest version; left out before the first"`
}

// Workspaces is every workspace of a tenant.
type Workspaces struct {
	Workspaces []Workspace `json:"workspaces" nullable:"false"`
}

// WorkspaceVersion is what is known of a version, which never changes.
type WorkspaceVersion struct {
	Number   int       `json:"number"`
	Digest   string    `json:"digest" doc:"of all names, modes and contents"`
	Base     int       `json:"base" doc:"the version that it was made from; 0 for none"`
	Files    int       `json:"files"`
	Size     int64     `json:"size" doc:"bytes of all files"`
	Created  time.Time `json:"created"`
	Actor    string    `json:"actor"`
	Sandbox  string    `json:"sandbox,omitempty" doc:"the id of the one that it came from"`
	Restored int       `json:"restored,omitempty" doc:"the version whose content this is again"`
	Captured int       `json:"captured,omitempty" doc:"how many files and links from outside /workspace are with it; no sandbox begins with them"`
	Outside  int64     `json:"captured_size,omitempty" doc:"their bytes"`
}

// WorkspaceVersions is every version of a workspace, newest first.
type WorkspaceVersions struct {
	Versions []WorkspaceVersion `json:"versions" nullable:"false"`
}

// WorkspaceChange is a path in which two versions differ.
type WorkspaceChange struct {
	Path string `json:"path" doc:"relative to /workspace; bytes that are not UTF-8 as \\xNN"`
	Kind string `json:"kind" doc:"added, changed or removed"`
	Type string `json:"type" doc:"file, directory or symlink"`
	Size int64  `json:"size"`
}

// WorkspaceDiff is every path in which two versions differ.
type WorkspaceDiff struct {
	Changes []WorkspaceChange `json:"changes" nullable:"false"`
}

// WorkspaceFile is a file or a link of a version.
type WorkspaceFile struct {
	Path   string `json:"path" doc:"where it was in the sandbox, absolute; bytes that are not UTF-8 as \\xNN"`
	Type   string `json:"type" doc:"file or symlink"`
	Mode   string `json:"mode" doc:"permission bits in octal digits"`
	Size   int64  `json:"size"`
	Target string `json:"target,omitempty" doc:"what a link says"`
}

// WorkspaceFiles are those of a version.
type WorkspaceFiles struct {
	Files []WorkspaceFile `json:"files" nullable:"false"`
}

// WorkspaceSkip is a path that was left out of a version.
type WorkspaceSkip struct {
	Path   string `json:"path" doc:"relative to /workspace, or absolute where something was to be captured"`
	Reason string `json:"reason"`
}

// WorkspaceCommit is what became of a commit.
type WorkspaceCommit struct {
	Name    string            `json:"name"`
	Version *WorkspaceVersion `json:"version,omitempty" doc:"the newest now; the one before, if nothing had changed"`
	Changes []WorkspaceChange `json:"changes" nullable:"false" doc:"those that were made, the first 1000"`
	Changed int               `json:"changed" doc:"how many there were"`
	Skipped []WorkspaceSkip   `json:"skipped" nullable:"false" doc:"what the version does not have, though the sandbox does; the first 1000"`
	Passed  int               `json:"passed" doc:"how many there were"`
	Files   []WorkspaceFile   `json:"captured,omitempty" doc:"files and links from outside /workspace that are with the version"`
	Error   *ProgramError     `json:"error,omitempty" doc:"why nothing was committed at the sandbox's end"`
}

// FromWorkspaceUse returns the form of u; nil for none.
func FromWorkspaceUse(u brig.WorkspaceUse) *WorkspaceUse {
	if u.Name == "" && u.Mode == "" && u.Version == 0 && len(u.Prefixes)+len(u.Capture) == 0 {
		return nil
	}
	return &WorkspaceUse{Name: u.Name, Mode: string(u.Mode), Prefixes: u.Prefixes, Capture: u.Capture, Version: u.Version, ID: u.ID}
}

// Noun returns the use that u is the form of.
func (u *WorkspaceUse) Noun() brig.WorkspaceUse {
	if u == nil {
		return brig.WorkspaceUse{}
	}
	return brig.WorkspaceUse{Name: u.Name, Mode: brig.WorkspaceMode(u.Mode), Prefixes: u.Prefixes, Capture: u.Capture, Version: u.Version, ID: u.ID}
}

// FromWorkspace returns the form of w.
func FromWorkspace(w *brig.Workspace) Workspace {
	return Workspace{Name: w.Name, ID: w.ID, Store: w.Store, Created: w.Created, Head: FromWorkspaceVersion(w.Head)}
}

// Noun returns the workspace that w is the form of.
func (w Workspace) Noun() *brig.Workspace {
	return &brig.Workspace{Name: w.Name, ID: w.ID, Store: w.Store, Created: w.Created, Head: w.Head.Noun()}
}

// FromWorkspaceVersion returns the form of v; nil for nil.
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

// Noun returns the version that v is the form of; nil for nil.
func (v *WorkspaceVersion) Noun() *brig.WorkspaceVersion {
	if v == nil {
		return nil
	}
	return &brig.WorkspaceVersion{
		Number: v.Number, Digest: v.Digest, Base: v.Base, Files: v.Files, Size: v.Size,
		Created: v.Created, Actor: v.Actor, Sandbox: brig.ID(v.Sandbox), Restored: v.Restored,
		Captured: v.Captured, CapturedSize: v.Outside,
	}
}

// FromWorkspaceChanges returns the form of a list.
func FromWorkspaceChanges(list []brig.WorkspaceChange) []WorkspaceChange {
	out := []WorkspaceChange{}
	for _, c := range list {
		out = append(out, WorkspaceChange{Path: c.Path, Kind: string(c.Kind), Type: string(c.Type), Size: c.Size})
	}
	return out
}

// ToWorkspaceChanges returns the list that this is the form of.
func ToWorkspaceChanges(list []WorkspaceChange) []brig.WorkspaceChange {
	out := []brig.WorkspaceChange{}
	for _, c := range list {
		out = append(out, brig.WorkspaceChange{Path: c.Path, Kind: brig.WorkspaceChangeKind(c.Kind), Type: brig.EntryType(c.Type), Size: c.Size})
	}
	return out
}

// FromWorkspaceFiles returns the form of a list.
func FromWorkspaceFiles(list []brig.WorkspaceFile) WorkspaceFiles {
	out := WorkspaceFiles{Files: []WorkspaceFile{}}
	for _, f := range list {
		out.Files = append(out.Files, WorkspaceFile{Path: f.Path, Type: string(f.Type), Mode: fmt.Sprintf("%04o", f.Mode), Size: f.Size, Target: f.Target})
	}
	return out
}

// Noun returns the list that this is the form of.
func (w WorkspaceFiles) Noun() []brig.WorkspaceFile {
	out := []brig.WorkspaceFile{}
	for _, f := range w.Files {
		mode, _ := strconv.ParseUint(f.Mode, 8, 32) // 0 of what no server sends
		out = append(out, brig.WorkspaceFile{Path: f.Path, Type: brig.EntryType(f.Type), Mode: uint32(mode), Size: f.Size, Target: f.Target})
	}
	return out
}

// FromWorkspaceCommit returns the form of c; nil for nil.
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

// Noun returns the commit that c is the form of; nil for nil.
func (c *WorkspaceCommit) Noun() *brig.WorkspaceCommit {
	if c == nil {
		return nil
	}
	out := &brig.WorkspaceCommit{
		Name: c.Name, Version: c.Version.Noun(), Changes: ToWorkspaceChanges(c.Changes), Changed: c.Changed, Passed: c.Passed,
		Captured: WorkspaceFiles{c.Files}.Noun(),
	}
	for _, s := range c.Skipped {
		out.Skipped = append(out.Skipped, brig.WorkspaceSkip(s))
	}
	if e := c.Error; e != nil {
		out.Error = &brig.ProgramError{Code: e.Code, Name: e.Name, Message: e.Message, Traceback: e.Traceback, Hint: e.Hint}
	}
	return out
}
