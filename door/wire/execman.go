package wire

import "encoding/json"

// ExecmanRequest asks an executor manager to run a program. Fields that are not
// here are not looked at.
type ExecmanRequest struct {
	CodeB64  string `json:"code_b64"`
	Language string `json:"language"`
	// Arguments is an object; main is called with it.
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// The languages of an executor manager.
const (
	ExecmanPython = "python"
	ExecmanNode   = "nodejs"
)

// ExecmanResult is how a program ended. Its fields are all there, always.
type ExecmanResult struct {
	Status     string `json:"status"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	ExitCode   int    `json:"exit_code"`
	Detail     string `json:"detail"`
	TimeUsedMS int64  `json:"time_used_ms"`
	// MemoryUsedKB is null where nobody counted.
	MemoryUsedKB *int64            `json:"memory_used_kb"`
	Resource     *string           `json:"resource_limit_type"`
	Unauthorized *string           `json:"unauthorized_access_type"`
	Runtime      *string           `json:"runtime_error_type"`
	Artifacts    []ExecmanArtifact `json:"artifacts"`
	Result       ExecmanValue      `json:"result"`
}

// ExecmanArtifact is a file that a program left.
type ExecmanArtifact struct {
	Name     string `json:"name"`
	MIMEType string `json:"mime_type"`
	Size     int64  `json:"size"`
	Content  []byte `json:"content_b64"`
}

// ExecmanValue is what main returned.
type ExecmanValue struct {
	Present bool            `json:"present"`
	Value   json.RawMessage `json:"value"`
	Type    string          `json:"type"`
}

// The statuses of an ExecmanResult.
const (
	ExecmanSuccess      = "success"
	ExecmanProgramError = "program_error"
	ExecmanResource     = "resource_limit_exceeded"
	ExecmanUnauthorized = "unauthorized_access"
	ExecmanRuntime      = "runtime_error"
	ExecmanRunner       = "program_runner_error" // the program did not run
)

// What an ExecmanResult says of the resource, the access and the error.
const (
	ExecmanTime    = "time"
	ExecmanMemory  = "memory"
	ExecmanOutput  = "output"
	ExecmanSyscall = "disallowed_syscall"
	ExecmanFile    = "file_access"
	ExecmanNetwork = "network_access"
	ExecmanSignal  = "signalled"
	ExecmanNonzero = "nonzero_exit"
)

// The exit codes of what is no program's own.
const (
	ExecmanInternalError = -3
	ExecmanBusy          = -10
	ExecmanTimeout       = -124
	ExecmanOutOfMemory   = -137
	ExecmanTooMany       = -429
	ExecmanRefused       = -999 // the code is unsafe, or something unforeseen
)

// What ExecmanResult.Detail says.
const (
	ExecmanUnsafe     = "Code is unsafe"
	ExecmanNoneFree   = "no_available_container"
	ExecmanInternal   = "internal_error"
	ExecmanUnforeseen = "unhandled_exception"
)

// ExecmanDeaf is what ExecmanResult.Stderr says of a program that the manager
// ended itself, since it did not end when its time was over.
const ExecmanDeaf = "Command timed out"
