package brig

import (
	"strings"
	"time"
)

// ID names a sandbox for ever. It is unguessable and never used again.
type ID string

// Spec is what a caller asks for when creating a sandbox. The engine fills
// every zero field that has a default before a provider sees it.
type Spec struct {
	// Name is unique among the tenant's sandboxes: 1 to 63 of a-z, 0-9 and
	// "-", not beginning with "-". Empty means that the engine picks one.
	Name string
	// Image is an image's name or its digest ("sha256:…"). Default "host".
	Image string
	// Template is the name of one that says what Image is, and what is left out
	// here. Image is then left out, too.
	Template string `json:",omitempty"`
	// Entrypoint has the image's entrypoint be the main program. Command's
	// arguments are then its arguments, in the stead of the image's own.
	Entrypoint bool `json:",omitempty"`
	// User and Dir are those of commands that do not say. Default what the
	// image says, else "user" and "/workspace".
	User string `json:",omitempty"`
	Dir  string `json:",omitempty"`
	// Command is the sandbox's main program, started at once; its end is the
	// sandbox's end. Without one the sandbox waits for Exec.
	Command *Command
	// Env is set for every command, under what a command sets itself.
	Env map[string]string
	// Labels are the tenant's own, for List.
	Labels map[string]string
	// Limits bound the sandbox.
	Limits Limits
	// Egress says where the sandbox may connect to. Default nowhere.
	Egress Egress `json:",omitzero"`
	// Secrets are given to the sandbox's commands.
	Secrets []SecretUse `json:",omitzero"`
	// Workspace is what the sandbox has at /workspace. Default nothing that
	// outlives it.
	Workspace WorkspaceUse `json:",omitzero"`
	// Require is the least that must be enforced; otherwise there is no sandbox.
	Require Requirement `json:",omitzero"`
	// Placement says where it wants to be. Default where its tenant's routing
	// has it.
	Placement Placement `json:",omitzero"`
	// TTL is how long the sandbox lives without being used. Default 5 min.
	TTL time.Duration
	// FixedLease says that using the sandbox does not renew its lease: it ends
	// TTL after it began unless it is extended.
	FixedLease bool `json:",omitempty"`
	// FreezeAfter is how long the sandbox may be unused before everything in
	// it stops until it is used again. Default never.
	FreezeAfter time.Duration `json:",omitzero"`
	// Ephemeral sandboxes die with the process that asked for them and leave
	// no record; the engine sets it for one-shot programs.
	Ephemeral bool
	// Blank machines are nobody's yet: Instance.Bind gives them to somebody.
	// They are made at low priority. The engine sets it for its pool.
	Blank bool `json:",omitempty"`
	// Held machines do not start their main program before Instance.Begin. The
	// engine sets it where a workspace comes first.
	Held bool `json:",omitempty"`
}

// Sandbox is what the world may know of one sandbox.
type Sandbox struct {
	ID       ID
	Tenant   string
	Spec     Spec
	State    State
	Provider string
	// Route says why it is there.
	Route Route `json:",omitzero"`
	// Digest is the digest of the image that Spec.Image meant at creation.
	Digest  string
	Created time.Time
	// Expires is when the lease ends unless it is extended.
	Expires time.Time
	// Ended is set when the machine is gone.
	Ended time.Time
	// Exit says how the machine ended; nil while it lives.
	Exit *Exit
	// Notes are facts about how limits are enforced on this machine that a
	// caller should know, for example "cpu: not enforced (no cgroup)".
	Notes []string
	// Pool says whether the machine was waiting or had to be made.
	Pool PoolUse
	// Enforcement is how far each area was seen to be enforced: on this machine
	// after Attest, and before that on the last one of its image that was looked
	// into. Nil when none was yet.
	Enforcement map[Area]Enforcement `json:",omitzero"`
}

// Exit is how a sandbox's machine, with its main program, ended.
type Exit struct {
	// Code is the main program's exit code, 128+n when signal n ended it.
	Code int
	// Reason is why the machine ended.
	Reason ExitReason
	// OOMKilled says that the host's kernel ended it for its memory limit.
	OOMKilled bool
	At        time.Time
}

// ExitReason says why a machine ended. The host decides it, never the guest.
type ExitReason string

// The reasons for which a machine ends.
const (
	Exited       ExitReason = "exited"        // its main program ended
	Stopped      ExitReason = "stopped"       // somebody stopped it
	Killed       ExitReason = "killed"        // somebody killed it
	LeaseExpired ExitReason = "lease_expired" // nobody used it for its TTL
	OutOfMem     ExitReason = "out_of_memory" // it hit its memory limit
	OverTime     ExitReason = "over_quota"    // its tenant had used up a day's time
	HungUp       ExitReason = "hung_up"       // whoever a one-shot was for went away
	Crashed      ExitReason = "crashed"       // none of these: the machine failed
)

// Usage is what a sandbox has used, as the host's kernel counts it.
type Usage struct {
	At time.Time
	// CPU is processor time since the sandbox began.
	CPU time.Duration
	// Memory is what it holds now, in bytes, Cache the part of it that the
	// host could take back.
	Memory, Cache int64
}

// ListOptions selects sandboxes.
type ListOptions struct {
	// Labels must all be present with these values.
	Labels map[string]string
	// States keeps only sandboxes in one of these; empty keeps all.
	States []State
	// Limit is the page's size, 1 to 1000. Default 100.
	Limit int
	// Cursor continues after a page; it is that page's Next.
	Cursor string
}

// Page is one page of a list.
type Page struct {
	Sandboxes []*Sandbox
	// Next is the cursor of the following page, empty on the last.
	Next string
}

// ValidName reports whether s can name a sandbox or an image: 1 to 63 of
// a-z, 0-9 and "-", not beginning with "-".
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
