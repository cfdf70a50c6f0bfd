package brig

import "time"

// Observer receives events of all tenants for the operator's metrics. The engine
// waits for each call and makes calls concurrently, so an observer must be fast and
// safe for concurrent use.
type Observer interface {
	// ExecutionEnded reports an execution that has ended, or that was admitted
	// but never started.
	ExecutionEnded(r ExecutionReport)
	// Refused reports an operation that failed with a Brig error.
	Refused(op string, kind Kind)
	// InstanceCreated reports the creation of an instance, or its failure.
	InstanceCreated(m CreationReport)
	// SandboxEnded reports the end of a sandbox.
	SandboxEnded(provider string, reason ExitReason)
	// Restarted reports a component that ended unexpectedly and was restarted.
	Restarted(provider, what string)
	// ProviderTested reports the result of a test program on a provider.
	ProviderTested(provider string, duration time.Duration, err error)
	// ProviderChecked reports whether a provider responds, even if it is not used. The engine
	// calls it repeatedly while the provider is configured.
	ProviderChecked(provider string, err error)
}

// ExecutionReport is one execution: a run, a command, code in a context, or a process.
type ExecutionReport struct {
	At       time.Time
	Tenant   string
	Provider string // NoProvider if no provider was chosen
	Op       string // the operation's name
	Sandbox  ID
	// Language is one of Languages, "command", or "other" for a kernel of the
	// image.
	Language string
	// CodeHash is "sha256:" and the hash of the source or the command line.
	CodeHash string
	Duration time.Duration
	Status   RunStatus
	// Kind is the kind of the error or of the verdict; empty if the program ended
	// by itself.
	Kind     Kind
	ExitCode int
	// Cost is the cost of the execution at the provider's rate.
	Cost float64
}

// NoProvider replaces the provider of a request that was rejected before a
// provider was selected.
const NoProvider = "none"

// RunStatus is the status of an execution.
type RunStatus string

// Statuses of executions.
const (
	RunSuccess     RunStatus = "success"
	RunError       RunStatus = "error" // the program's own failure
	RunTimeout     RunStatus = "timeout"
	RunOutOfMemory RunStatus = "out_of_memory"
	RunBlocked     RunStatus = "blocked"  // blocked by policy
	RunRefused     RunStatus = "refused"  // an invalid request, or too many requests
	RunCanceled    RunStatus = "canceled" // the caller disconnected
	RunFailed      RunStatus = "failed"   // Brig's or the provider's failure
)

// RunStatuses lists every status.
var RunStatuses = []RunStatus{RunSuccess, RunError, RunTimeout, RunOutOfMemory, RunBlocked, RunRefused, RunCanceled, RunFailed}

// RunStatusOf returns the status of an execution that ended with an error of
// the given kind.
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

// CountsForAvailability reports whether an execution counts toward the error rate of the
// service. Callers' errors and canceled calls do not.
func (s RunStatus) CountsForAvailability() bool {
	return s != RunBlocked && s != RunRefused && s != RunCanceled
}

// IsServiceError reports whether the status is an error of the service: an exceeded limit or
// a failure. The failure of a program itself is not an error of the service.
func (s RunStatus) IsServiceError() bool {
	return s == RunTimeout || s == RunOutOfMemory || s == RunFailed
}

// CreationReport describes the creation of an instance.
type CreationReport struct {
	Provider string
	For      CreationPurpose
	Took     time.Duration
	Err      error
}

// CreationPurpose is the purpose of a new instance.
type CreationPurpose string

// The purposes of instances. MadeClaim is the binding of a pooled instance.
const (
	MadeCaller CreationPurpose = "caller"
	MadePool   CreationPurpose = "pool"
	MadeClaim  CreationPurpose = "claim"
	MadeTrial  CreationPurpose = "trial"
)

// Meter receives the calls of a remote provider; see ProviderEnv.Called.
type Meter interface {
	// Called reports one call of the provider's API with the status of the
	// response, or 0 if there was no response.
	Called(provider, region, operation string, status int, duration time.Duration)
	// Allowance reports the provider's rate limit and the number of remaining
	// calls.
	Allowance(provider, region string, limit, left float64)
}

// Load is the current load of the server.
type Load struct {
	Sandboxes  map[string]int // live sandboxes by provider
	Executions map[string]int // running executions by provider
	// Making is the number of instances being created. Waiting is the number of
	// callers that wait to create one.
	Making, Waiting int
}
