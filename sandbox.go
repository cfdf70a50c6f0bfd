package brig

import (
	"context"
	"strings"
	"time"
)

// ID identifies a sandbox permanently. It is unguessable and never reused.
type ID string

// Spec is a request for a sandbox. The engine sets the default of every zero
// field before it passes the Spec to a provider.
type Spec struct {
	// Name is unique among the tenant's sandboxes: 1 to 63 of a-z, 0-9 and "-",
	// not beginning with "-". If it is empty, the engine picks one.
	Name string
	// Image is an image's name or its digest ("sha256:…"). Default: "host".
	Image string
	// Template is the name of a template that determines Image and the defaults
	// of other fields. Image must then be empty.
	Template string `json:",omitempty"`
	// Entrypoint makes the image's entrypoint the main program. The arguments in
	// Command then replace the image's own arguments.
	Entrypoint bool `json:",omitempty"`
	// User and Dir are the defaults for commands. If they are empty, those of the
	// image apply, or else "user" and "/workspace".
	User string `json:",omitempty"`
	Dir  string `json:",omitempty"`
	// Command is the sandbox's main program. It starts immediately, and the
	// sandbox ends when it exits. If Command is nil, the sandbox waits for
	// Exec.
	Command *Command
	// Env is set for every command; the command's own variables override it.
	Env map[string]string
	// Labels are arbitrary key-value pairs by which List can select.
	Labels map[string]string
	// Limits bound the sandbox.
	Limits Limits
	// Egress are the sandbox's egress rules. Default: all connections blocked.
	Egress Egress `json:",omitzero"`
	// Secrets are the secrets that the sandbox's commands receive.
	Secrets []SecretUse `json:",omitzero"`
	// Workspace is the workspace mounted at /workspace. Default: none; the
	// directory ends with the sandbox.
	Workspace WorkspaceUse `json:",omitzero"`
	// Volumes are the volumes that the sandbox mounts. Default: none.
	Volumes []VolumeMount `json:",omitzero"`
	// Require is the minimum enforcement. If the provider cannot meet it, the
	// sandbox is not created.
	Require Requirement `json:",omitzero"`
	// Placement selects the provider. Default: the tenant's routing.
	Placement Placement `json:",omitzero"`
	// TTL is the time without use after which the sandbox ends. Default: 5 min.
	TTL time.Duration
	// FixedLease disables the renewal of the lease by use: the sandbox ends TTL
	// after its start unless it is extended.
	FixedLease bool `json:",omitempty"`
	// FreezeAfter is the idle time after which the sandbox is frozen until its
	// next use. Default: never.
	FreezeAfter time.Duration `json:",omitzero"`
	// Pausable sandboxes can be paused while programs run in them: their streams
	// pass through the agent, which makes each message somewhat slower. Other
	// sandboxes can be paused only while no programs run in them except the
	// interpreters of contexts.
	Pausable bool `json:",omitempty"`
	// PausableIfSupported is like Pausable if the provider can save sandboxes, and
	// has no effect otherwise. The engine replaces it with Pausable.
	PausableIfSupported bool `json:",omitempty"`
	// PauseAtEnd makes the sandbox pause at the end of its lease, instead of
	// ending. If a call or a program prevents the pause, it is retried for 15
	// minutes, and then the sandbox ends.
	PauseAtEnd bool `json:",omitempty"`
	// PauseAfter is the idle time after which the sandbox is paused until its next use. It must
	// be less than TTL. If a call or a program prevents the pause, the engine tries again after
	// the same time. Default: never.
	PauseAfter time.Duration `json:",omitzero"`
	// PauseFilesOnly makes pauses triggered by PauseAtEnd or PauseAfter keep only the files;
	// see PauseOptions.FilesOnly.
	PauseFilesOnly bool `json:",omitempty"`
	// An ephemeral sandbox ends with the process that requested it and leaves
	// no record. The engine sets it for runs.
	Ephemeral bool
	// A blank instance belongs to no tenant until Instance.Bind assigns it to
	// one. Providers create it at low priority. The engine sets it for its pool.
	Blank bool `json:",omitempty"`
	// A held instance does not start its main program before Instance.StartMain.
	// The engine sets it if a workspace must be filled first.
	Held bool `json:",omitempty"`
	// BuildRights gives programs that run as root the capabilities of a container build
	// (change owners, ignore file modes, change users). The engine sets it for sandboxes that
	// build templates.
	BuildRights bool `json:",omitempty"`
	// Share names a group of instances that together receive one share of CPU time.
	// If it is empty, the instance has its own share. The engine sets it to the
	// tenant's name when it calls a provider. It is never stored.
	Share string `json:"-"`
}

// Sandbox is the public state of one sandbox.
type Sandbox struct {
	ID       ID
	Tenant   string
	Spec     Spec
	State    State
	Provider string
	// Route is the provider with the reason for its selection.
	Route Route `json:",omitzero"`
	// Digest is the digest of the image that Spec.Image resolved to at creation.
	Digest  string
	Created time.Time
	// Expires is the end of the lease unless it is extended.
	Expires time.Time
	// Ended is the time at which the instance ended; zero before.
	Ended time.Time
	// Exit describes how the instance ended; nil while it runs.
	Exit *Exit
	// Notes are remarks for the caller about the enforcement of limits on this
	// instance, for example "cpu: not enforced (no cgroup)".
	Notes []string
	// Pause describes the pause of a paused sandbox; nil otherwise.
	Pause *Pause `json:",omitempty"`
	// Origin is the ID of the sandbox of which this one is a copy, or empty.
	Origin ID `json:",omitempty"`
	// Pool is the origin of the instance.
	Pool PoolUse
	// Enforcement is the observed enforcement of each area. Before the first Attest
	// of this instance, it is the enforcement of the image's last examined
	// instance. It is nil if no instance of the image was examined yet.
	Enforcement map[Area]Enforcement `json:",omitzero"`
}

// MinPauseAfter is the minimum of Spec.PauseAfter, because each pause writes the
// memory of the sandbox to disk.
const MinPauseAfter = time.Second

// MaxForks is the maximum number of copies that one Fork creates.
const MaxForks = 32

// ForkSpec describes the copies of a sandbox. Properties that it lacks are those of the original.
type ForkSpec struct {
	// Name is the name of the copy, if Count is 1. Default: a generated name that
	// begins with that of the original.
	Name string
	// Paused creates a single copy, which is paused and uses only disk space. Each Fork of this
	// copy starts from the same state and does not resume it.
	Paused bool
	// Count is the number of copies. Default: 1. Partial makes fewer copies, but at least one, if
	// the limits of the tenant or of the provider do not allow more. Otherwise all copies are made or
	// none.
	Count   int
	Partial bool
	// Labels are the labels of each copy. Default (nil): those of the original.
	Labels map[string]string
	// TTL is the lease of each copy, from its start. Default: that of the original.
	TTL time.Duration
	// Env is added to the original's environment and overrides it. Programs that are copied keep
	// the environment with which they started.
	Env map[string]string
	// Secrets are added to those of the original. Programs that are copied do not get them.
	Secrets []SecretUse
	// Egress replaces the egress rules and the bandwidth. Default (nil): those of the original.
	Egress *Egress
	// User and Dir are the defaults of commands. Default: those of the original.
	User, Dir string
	// AtEnd is what happens at the end of the lease of each copy. Default (nil): as for the
	// original.
	AtEnd *AtEnd
	// FixedLease replaces Spec.FixedLease. Default (nil): that of the original.
	FixedLease *bool
	// Limits replaces the limits that are not zero. Only copies of a sandbox that is paused without
	// its memory can have other limits, because they boot.
	Limits Limits
	// Volumes replaces the mounts of volumes. Default (nil): those of the original. Only copies of a
	// sandbox that is paused without its memory can have other mounts.
	Volumes []VolumeMount
	// BuildRights replaces Spec.BuildRights. Only a copy that boots can have it.
	BuildRights bool
}

// AtEnd describes the end of a sandbox's lease; see Spec.PauseAtEnd and Spec.PauseFilesOnly.
type AtEnd struct{ Pause, FilesOnly bool }

// PauseOptions are the options of a pause.
type PauseOptions struct {
	// FilesOnly keeps the files of the sandbox, but not its memory. No program prevents the
	// pause; contexts, executions and processes end. A resume boots the sandbox again, even on
	// another build of Brig or another processor, and starts its main program and the start
	// command of its template. The content of /tmp and /dev/shm is lost.
	FilesOnly bool
}

// Pause describes a paused sandbox: its memory and its files are on disk, and
// it has no processes.
type Pause struct {
	At time.Time
	// Bytes is the disk space that the saved memory and files use.
	Bytes int64
	// Left is the remaining duration of the lease. The lease continues when the
	// sandbox is resumed.
	Left time.Duration
	// FilesOnly means that only the files were saved; see PauseOptions.
	FilesOnly bool `json:",omitempty"`
	// Executions is the number of processes in the save. They count against the
	// tenant's quota again when the sandbox is resumed.
	Executions int `json:",omitempty"`
}

type noResumeKey struct{}

// WithoutResume returns a context whose calls do not resume a paused sandbox.
// They return FailedPrecondition instead, even if the sandbox is paused while a
// call waits to use it. Service.Resume is not affected.
func WithoutResume(ctx context.Context) context.Context {
	return context.WithValue(ctx, noResumeKey{}, true)
}

// MayResume reports whether a call with ctx may resume a paused sandbox.
func MayResume(ctx context.Context) bool { return ctx.Value(noResumeKey{}) == nil }

// Exit describes how a sandbox's instance and its main program ended.
type Exit struct {
	// Code is the main program's exit code; 128+n if signal n ended it.
	Code int
	// Reason is the reason for the end.
	Reason ExitReason
	// OOMKilled is true if the host's kernel killed the instance at its memory
	// limit.
	OOMKilled bool
	At        time.Time
}

// ExitReason is the reason why an instance ended. The host determines it, never
// the guest.
type ExitReason string

// The reasons for the end of an instance.
const (
	Exited       ExitReason = "exited"        // the main program ended
	Stopped      ExitReason = "stopped"       // ended by a Stop call
	Killed       ExitReason = "killed"        // ended by a Kill call
	LeaseExpired ExitReason = "lease_expired" // unused for its TTL
	OutOfMem     ExitReason = "out_of_memory" // it exceeded its memory limit
	OverTime     ExitReason = "over_quota"    // the tenant exhausted a daily time quota
	HungUp       ExitReason = "hung_up"       // the caller of a run disconnected
	AgentLost    ExitReason = "agent_lost"    // the agent stopped working, and executions had to end
	Crashed      ExitReason = "crashed"       // the instance failed for another reason
	// Saved is a reason only for instances, never for sandboxes: a save ended the
	// instance, and the sandbox is paused.
	Saved ExitReason = "saved"
)

// Usage is the resource usage of a sandbox, as measured by the host's kernel.
type Usage struct {
	At time.Time
	// CPU is the CPU time since the sandbox started.
	CPU time.Duration
	// Memory is the current usage in bytes, and Cache the part that the host can
	// reclaim.
	Memory, Cache int64
	// Disk is the disk space of the files that the sandbox wrote, in bytes. It is -1 if
	// the provider does not measure it.
	Disk int64
	// Sent and Received count the bytes of the sandbox's network since its rules were
	// attached, or since the server started. They are 0 for a sandbox without rules.
	Sent, Received int64
}

// Refusals counts the denials by a sandbox's kernel since the sandbox started.
type Refusals struct {
	// Processes counts processes and threads beyond Limits.Processes.
	Processes int64
	// Connections counts connections, and connectionless packets, to addresses
	// without a route in the sandbox. A sandbox without egress rules has routes only
	// to its own addresses.
	Connections int64
}

// ListOptions selects sandboxes.
type ListOptions struct {
	// Labels selects only sandboxes that have all of these labels.
	Labels map[string]string
	// States selects only sandboxes in one of these states; empty selects all.
	States []State
	// Limit is the page's size, 1 to 1000. Default: 100.
	Limit int
	// Cursor is the value of Next in the previous page.
	Cursor string
}

// Page is one page of a list.
type Page struct {
	Sandboxes []*Sandbox
	// Next is the cursor of the next page; empty on the last page.
	Next string
}

// ValidName reports whether s is a valid name of a sandbox or an image: 1 to 63
// of a-z, 0-9 and "-", not beginning with "-".
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
