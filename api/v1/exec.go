package v1

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// ExecRequest is the request to run a command in a sandbox, with either command
// or shell.
type ExecRequest struct {
	Command   []string          `json:"command,omitempty" doc:"the program and its arguments, without a shell" minItems:"1" maxItems:"10000" items:"^[^\\x00]*$"`
	Shell     string            `json:"shell,omitempty" doc:"a script for the image's shell" minLength:"1" pattern:"^[^\\x00]*$"`
	Env       map[string]string `json:"env,omitempty" doc:"environment variables that override the sandbox's" maxItems:"1000" keys:"^[^=\\x00]+$" items:"^[^\\x00]*$"`
	Cwd       string            `json:"cwd,omitempty" doc:"working directory; default the sandbox's default_cwd, else /workspace" maxLength:"4096" pattern:"^/[^\\x00]*$"`
	User      string            `json:"user,omitempty" doc:"user (the default), root, or the IDs of another user and its group, such as 1001:1001"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" doc:"wall time after which the whole process tree is killed" minimum:"0" maximum:"9223372036854"`
	Stdin     *string           `json:"stdin,omitempty" doc:"text for standard input"`
	StdinB64  []byte            `json:"stdin_b64,omitzero" doc:"bytes for standard input, in base64"`
	Survive   bool              `json:"survive,omitempty" doc:"continue the process if the caller disconnects"`
	Stream    bool              `json:"stream,omitempty" doc:"answer with events while the process runs" hidden:"true"`
	Streams   []string          `json:"streams,omitzero" doc:"which of stdout, stderr and descriptor3 to stream; default stdout and stderr. The result contains the other streams" enum:"stdout,stderr,descriptor3" hidden:"true"`
}

// Cut describes a truncated output: how many bytes of its head and of its tail
// were kept.
type Cut struct {
	Head int `json:"head"`
	Tail int `json:"tail"`
}

// Outputs is the output of a process.
type Outputs struct {
	Stdout string `json:"stdout" doc:"the output; bytes that are not UTF-8 are replaced, and cut output is marked"`
	Stderr string `json:"stderr"`

	Truncated   bool   `json:"truncated" doc:"whether stdout or stderr was cut"`
	StdoutBytes int64  `json:"stdout_bytes" doc:"number of bytes written, stored or not"`
	StderrBytes int64  `json:"stderr_bytes"`
	StdoutB64   []byte `json:"stdout_b64,omitzero" doc:"the exact stored bytes, without the mark; present if they are not UTF-8"`
	StderrB64   []byte `json:"stderr_b64,omitzero"`
	StdoutCut   *Cut   `json:"stdout_cut,omitempty" doc:"present if stdout was cut"`
	StderrCut   *Cut   `json:"stderr_cut,omitempty"`
}

// Result is the result of a process with its output.
type Result struct {
	Exec string `json:"exec" doc:"ID of the execution"`
	Outputs
	ExitCode int    `json:"exit_code" doc:"the program's exit code; 128+n if signal n ended it, 124 after a timeout, 137 if it ran out of memory"`
	Signal   string `json:"signal" doc:"the signal that ended it, if any"`

	TimedOut  bool `json:"timed_out"`
	OOMKilled bool `json:"oom_killed"`
	// SandboxEnded is absent if the sandbox outlived the program.
	SandboxEnded string    `json:"sandbox_ended,omitempty" doc:"why the sandbox ended while the program ran, and ended the program with it: the reason of its exit"`
	Started      time.Time `json:"started"`
	DurationMS   int64     `json:"duration_ms"`
	Done         bool      `json:"done" doc:"false while the execution runs"`
}

// LogEnd is the last event of a followed log, which ends with the sandbox. It
// has no fields.
type LogEnd struct{}

// Execution is the stored record of one exec.
type Execution struct {
	Sandbox   string            `json:"sandbox" doc:"ID of the sandbox"`
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

// FromCommand converts c to its wire type.
func FromCommand(c brig.Command) ExecRequest {
	return ExecRequest{
		Command: c.Argv, Shell: c.Shell, Env: c.Env, Cwd: c.Dir,
		User: c.User, TimeoutMS: FromDuration(c.Timeout), Survive: c.Survive,
	}
}

// Domain converts r to its domain type. It returns an error if a field is not
// valid.
func (r ExecRequest) Domain() (brig.Command, error) {
	return brig.Command{
		Argv: r.Command, Shell: r.Shell, Env: r.Env, Dir: r.Cwd,
		User: r.User, Timeout: ToDuration(r.TimeoutMS), Survive: r.Survive,
	}, CheckDuration("timeout_ms", r.TimeoutMS)
}

// FromResult converts r to its wire type.
func FromResult(r *brig.Result) Result {
	return Result{
		Exec: r.ExecID, Outputs: FromOutputs(r.Stdout, r.Stderr), ExitCode: r.ExitCode, Signal: r.Signal,
		TimedOut: r.TimedOut, OOMKilled: r.OOMKilled, SandboxEnded: string(r.SandboxEnded),
		Started: r.Started, DurationMS: r.Duration.Milliseconds(), Done: r.Done,
	}
}

// Domain converts r to its domain type.
func (r Result) Domain() *brig.Result {
	out := &brig.Result{
		ExecID: r.Exec, ExitCode: r.ExitCode, Signal: r.Signal, TimedOut: r.TimedOut, OOMKilled: r.OOMKilled,
		SandboxEnded: brig.ExitReason(r.SandboxEnded),
		Started:      r.Started, Duration: ToDuration(r.DurationMS), Done: r.Done,
	}
	out.Stdout, out.Stderr = r.Outputs.Domain()
	return out
}

// FromOutputs converts the two outputs of a process to their wire type.
func FromOutputs(stdout, stderr brig.Output) Outputs {
	out := Outputs{
		Truncated: stdout.Truncated() || stderr.Truncated(), StdoutBytes: stdout.Total, StderrBytes: stderr.Total,
	}
	out.Stdout, out.StdoutB64, out.StdoutCut = fromOutput(stdout)
	out.Stderr, out.StderrB64, out.StderrCut = fromOutput(stderr)
	return out
}

// Domain restores the exact outputs.
func (o Outputs) Domain() (stdout, stderr brig.Output) {
	return toOutput(o.Stdout, o.StdoutB64, o.StdoutCut, o.StdoutBytes), toOutput(o.Stderr, o.StderrB64, o.StderrCut, o.StderrBytes)
}

// fromOutput returns an output as text, or as exact bytes if it is not valid
// UTF-8. cut describes how it was truncated.
func fromOutput(o brig.Output) (text string, b64 []byte, cut *Cut) {
	kept := slices.Concat(o.Head, o.Tail)
	if !o.Truncated() {
		if utf8.Valid(kept) {
			return string(kept), nil, nil
		}
		return readable(kept), kept, nil
	}
	cut = &Cut{Head: len(o.Head), Tail: len(o.Tail)}
	text = fmt.Sprintf("%s\n[... %d bytes cut ...]\n%s", readable(o.Head), o.Total-int64(len(kept)), readable(o.Tail))
	if utf8.Valid(o.Head) && utf8.Valid(o.Tail) {
		kept = nil
	}
	return text, kept, cut
}

func readable(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// toOutput restores the exact output. Truncated text has a mark between its
// head and its tail; truncated bytes do not.
func toOutput(text string, b64 []byte, cut *Cut, total int64) brig.Output {
	kept := b64
	if kept == nil && text != "" {
		kept = []byte(text)
	}
	if cut == nil || cut.Head < 0 || cut.Tail < 0 || cut.Head > len(kept) || cut.Tail > len(kept)-cut.Head {
		return brig.Output{Head: kept, Total: total}
	}
	return brig.Output{Head: kept[:cut.Head:cut.Head], Tail: kept[len(kept)-cut.Tail:], Total: total}
}

// FromExecution converts x to its wire type.
func FromExecution(x *brig.Execution) Execution {
	c := x.Command
	return Execution{
		Sandbox: string(x.Sandbox), Command: c.Argv, Shell: c.Shell, Env: c.Env, Cwd: c.Dir, User: c.User,
		TimeoutMS: FromDuration(c.Timeout), Survive: c.Survive, Result: FromResult(&x.Result),
	}
}

// Domain converts x to its domain type.
func (x Execution) Domain() *brig.Execution {
	return &brig.Execution{
		Sandbox: brig.ID(x.Sandbox), Result: *x.Result.Domain(),
		Command: brig.Command{
			Argv: x.Command, Shell: x.Shell, Env: x.Env, Dir: x.Cwd,
			User: x.User, Timeout: ToDuration(x.TimeoutMS), Survive: x.Survive,
		},
	}
}

// FromExecutions converts a list to its wire type.
func FromExecutions(list []*brig.Execution) Executions {
	out := Executions{Execs: []Execution{}}
	for _, x := range list {
		out.Execs = append(out.Execs, FromExecution(x))
	}
	return out
}
