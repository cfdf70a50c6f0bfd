package brig

import "time"

// Observer is told what happens, to count it. Calls wait for it, so it must be
// quick, and it is told of several things at once. What it is told is of all
// tenants: it is for the operator.
type Observer interface {
	// Ran tells of an execution: one that has ended, or that came past the
	// gate and never began.
	Ran(r Ran)
	// Refused tells of an operation that ended with an error of ours.
	Refused(op string, kind Kind)
	// Made tells of a machine that is there, or could not be made.
	Made(m Making)
	// Gone tells of a sandbox's end.
	Gone(provider string, why ExitReason)
	// Restarted tells of something that died and was replaced.
	Restarted(provider, what string)
	// Tried tells of a program that was run for nothing but to see whether a
	// provider works.
	Tried(provider string, took time.Duration, err error)
}

// Ran is one execution: a run, a command, code in a context, or a process.
type Ran struct {
	At       time.Time
	Tenant   string
	Provider string // NoProvider if it did not come so far
	Op       string // the operation's name
	Sandbox  ID
	// Language is one of ours, "command", or "other" for a kernel of the image.
	Language string
	// CodeHash is "sha256:" and the hash of the source or the command line.
	CodeHash string
	Duration time.Duration
	Status   RunStatus
	// Kind is that of the error or the verdict; empty when the program itself
	// decided how it ended.
	Kind     Kind
	ExitCode int
	// Cost is what the provider's rate makes of it.
	Cost float64
}

// NoProvider stands for a provider where there is none: what was asked for was
// refused before any was chosen.
const NoProvider = "none"

// RunStatus says in a word how an execution went.
type RunStatus string

// The ways in which executions go.
const (
	RunSuccess     RunStatus = "success"
	RunError       RunStatus = "error" // the program's own failure
	RunTimeout     RunStatus = "timeout"
	RunOutOfMemory RunStatus = "out_of_memory"
	RunBlocked     RunStatus = "blocked"  // by policy
	RunRefused     RunStatus = "refused"  // the caller's mistake, or too much of it
	RunCanceled    RunStatus = "canceled" // the caller went away
	RunFailed      RunStatus = "failed"   // Brig's or the provider's failure
)

// RunStatuses lists them all.
var RunStatuses = []RunStatus{RunSuccess, RunError, RunTimeout, RunOutOfMemory, RunBlocked, RunRefused, RunCanceled, RunFailed}

// RunStatusOf says how an execution went that ended with an error of a kind.
func RunStatusOf(k Kind) RunStatus {
	switch k {
	case "":
		return RunSuccess
	case Timeout:
		return RunTimeout
	case OutOfMemory:
		return RunOutOfMemory
	case PolicyBlocked:
		return RunBlocked
	case Canceled:
		return RunCanceled
	case RateLimited, InvalidArgument, Unauthenticated, PermissionDenied, NotFound, AlreadyExists, FailedPrecondition, Unimplemented:
		return RunRefused
	}
	return RunFailed
}

// Counts reports whether an execution says anything about how well the service
// works: what callers did wrong, and what they gave up, does not.
func (s RunStatus) Counts() bool { return s != RunBlocked && s != RunRefused && s != RunCanceled }

// Erred reports whether it is an error of the service's: a limit that was hit,
// or a failure. A program that fails has run well.
func (s RunStatus) Erred() bool { return s == RunTimeout || s == RunOutOfMemory || s == RunFailed }

// Making is how a machine came to be.
type Making struct {
	Provider string
	For      MadeFor
	Took     time.Duration
	Err      error
}

// MadeFor says what a machine was made for.
type MadeFor string

// What machines are made for. MadeClaim is one that waited and was bound.
const (
	MadeCaller MadeFor = "caller"
	MadePool   MadeFor = "pool"
	MadeClaim  MadeFor = "claim"
	MadeTrial  MadeFor = "trial"
)

// Meter is told by a provider that is reached over a network what it sees of
// it; see Site.Called.
type Meter interface {
	// Called tells of one call of the provider's API and of the status that it
	// answered, 0 when it did not.
	Called(provider, region, operation string, status int, took time.Duration)
	// Allowance tells how many calls the provider's rate limit allows, and how
	// many of these are left.
	Allowance(provider, region string, limit, left float64)
}

// Load is what goes on at this moment.
type Load struct {
	Sandboxes  map[string]int // that live, by provider
	Executions map[string]int // that go on, by provider
	// Making is how many machines are being made, Waiting how many callers wait
	// until one may be.
	Making, Waiting int
}
