package wire

import "time"

// ExecRequest asks for a command in a sandbox: command or shell.
type ExecRequest struct {
	Command   []string          `json:"command,omitempty" doc:"the program and its arguments, never parsed by a shell"`
	Shell     string            `json:"shell,omitempty" doc:"a script for the image's shell"`
	Env       map[string]string `json:"env,omitempty" doc:"added to the sandbox's environment, and wins over it"`
	Cwd       string            `json:"cwd,omitempty" doc:"working directory; default /workspace"`
	User      string            `json:"user,omitempty" doc:"user (the default) or root"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" doc:"wall time after which the whole process tree is killed"`
	Stdin     *string           `json:"stdin,omitempty" doc:"text for standard input"`
	StdinB64  []byte            `json:"stdin_b64,omitzero" doc:"bytes for standard input, in base64"`
	Survive   bool              `json:"survive,omitempty" doc:"let the process run on when the caller goes away"`
	Stream    bool              `json:"stream,omitempty" doc:"answer with events while the process runs"`
	Streams   []string          `json:"streams,omitzero" doc:"which of stdout, stderr and descriptor3 to stream; default stdout and stderr. What is not streamed is captured in the result"`
}

// Cut says how an output was cut: how many bytes of its beginning and of its
// end were kept.
type Cut struct {
	Head int `json:"head"`
	Tail int `json:"tail"`
}

// Outputs is what something wrote.
type Outputs struct {
	Stdout string `json:"stdout" doc:"what it wrote; what is not UTF-8 is replaced, what was cut is marked"`
	Stderr string `json:"stderr"`

	Truncated   bool   `json:"truncated" doc:"whether bytes of either output were cut"`
	StdoutBytes int64  `json:"stdout_bytes" doc:"how many bytes it wrote, kept or not"`
	StderrBytes int64  `json:"stderr_bytes"`
	StdoutB64   []byte `json:"stdout_b64,omitzero" doc:"the bytes that were kept, exactly and without the mark; given when they are not UTF-8"`
	StderrB64   []byte `json:"stderr_b64,omitzero"`
	StdoutCut   *Cut   `json:"stdout_cut,omitempty" doc:"given when stdout was cut"`
	StderrCut   *Cut   `json:"stderr_cut,omitempty"`
}

// Result says how a process ended, with what it wrote.
type Result struct {
	Exec string `json:"exec" doc:"id of the execution"`
	Outputs
	ExitCode int    `json:"exit_code" doc:"the program's own; 128+n when signal n ended it, 124 when its time ran out, 137 when its memory did"`
	Signal   string `json:"signal" doc:"the signal that ended it, if one did"`

	TimedOut   bool      `json:"timed_out"`
	OOMKilled  bool      `json:"oom_killed"`
	Started    time.Time `json:"started"`
	DurationMS int64     `json:"duration_ms"`
	Done       bool      `json:"done" doc:"false for an execution that is still going on"`
}

// Execution is one exec as it is remembered.
type Execution struct {
	Sandbox   string            `json:"sandbox" doc:"id of its sandbox"`
	Command   []string          `json:"command,omitempty"`
	Shell     string            `json:"shell,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Cwd       string            `json:"cwd,omitempty"`
	User      string            `json:"user,omitempty"`
	TimeoutMS int64             `json:"timeout_ms,omitempty"`
	Survive   bool              `json:"survive,omitempty"`
	Result
}

// Executions is a list of executions, newest first.
type Executions struct {
	Execs []Execution `json:"execs" nullable:"false"`
}
