package v1

import "encoding/json"

// ExecmanRequest is the request to run a program with an executor manager.
// Other fields are ignored.
type ExecmanRequest struct {
	CodeB64  string `json:"code_b64"`
	Language string `json:"language"`
	// Arguments is an object with the arguments of main.
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Languages of an executor manager.
const (
	ExecmanPython = "python"
	ExecmanNode   = "nodejs"
)

// ExecmanResult is the result of a program. All fields are always present.
type ExecmanResult struct {
	Status     string `json:"status"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	ExitCode   int    `json:"exit_code"`
	Detail     string `json:"detail"`
	TimeUsedMS int64  `json:"time_used_ms"`
	// MemoryUsedKB is null if it was not measured.
	MemoryUsedKB *int64            `json:"memory_used_kb"`
	Resource     *string           `json:"resource_limit_type"`
	Unauthorized *string           `json:"unauthorized_access_type"`
	Runtime      *string           `json:"runtime_error_type"`
	Artifacts    []ExecmanArtifact `json:"artifacts"`
	Result       ExecmanValue      `json:"result"`
}

// ExecmanArtifact is a file that a program created.
type ExecmanArtifact struct {
	Name     string `json:"name"`
	MIMEType string `json:"mime_type"`
	Size     int64  `json:"size"`
	Content  []byte `json:"content_b64"`
}

// ExecmanValue is the return value of main.
type ExecmanValue struct {
	Present bool            `json:"present"`
	Value   json.RawMessage `json:"value"`
	Type    string          `json:"type"`
}

// Statuses of an ExecmanResult.
const (
	ExecmanSuccess      = "success"
	ExecmanProgramError = "program_error"
	ExecmanResource     = "resource_limit_exceeded"
	ExecmanUnauthorized = "unauthorized_access"
	ExecmanRuntime      = "runtime_error"
	ExecmanRunner       = "program_runner_error" // the program did not run
)

// Values of the resource, access and error fields of an ExecmanResult.
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

// Exit codes that do not come from a program.
const (
	ExecmanInternalError = -3
	ExecmanBusy          = -10
	ExecmanTimeout       = -124
	ExecmanOutOfMemory   = -137
	ExecmanTooMany       = -429
	ExecmanRefused       = -999 // the code is unsafe, or there was an unexpected error
)

// Values of ExecmanResult.Detail.
const (
	ExecmanUnsafe     = "Code is unsafe"
	ExecmanNoneFree   = "no_available_container"
	ExecmanInternal   = "internal_error"
	ExecmanUnforeseen = "unhandled_exception"
)

// ExecmanTimeoutStderr is the ExecmanResult.Stderr of a program that did not end after
// its timeout and was killed by the manager.
const ExecmanTimeoutStderr = "Command timed out"
