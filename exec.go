package brig

import (
	"io"
	"strings"
	"time"
)

// Command is one process to run in a sandbox.
type Command struct {
	// Argv is the program and its arguments, never parsed by a shell.
	Argv []string
	// Shell is a script for the image's shell, /bin/bash where there is one
	// and /bin/sh otherwise. Exactly one of Argv and Shell is set.
	Shell string
	// Env is added to the sandbox's environment and wins over it.
	Env map[string]string
	// Dir is the working directory. Default "/workspace".
	Dir string
	// User is "user" (uid 1000, the default) or "root" (uid 0). Neither has
	// any capability. For an image's entrypoint the engine may make it
	// "UID:GID", an account of the image's own; no caller can.
	User string
	// Timeout is the wall time after which the whole process tree is killed.
	// Default 30 s; for a sandbox's main program no limit but the lease.
	Timeout time.Duration
	// Survive lets the process run on when the caller goes away; otherwise a
	// caller's hang-up kills it. A server's own death never does.
	Survive bool
}

// IO carries the streams of a Command. Writers give back-pressure for free.
// A nil Stdin is an empty one. With a nil writer the stream is captured in
// the Result, bounded by Limits.Output.
type IO struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Result, when set, receives what the process writes to its descriptor 3.
	Result io.Writer
	// Started, when set, is called once with the id of the execution as soon
	// as its process is being started.
	Started func(execID string)
}

// Result is how a process ended. A non-zero exit is a result, not an error.
type Result struct {
	// ExecID names the execution; ListExecs and GetExec find it again.
	ExecID string
	// ExitCode is the program's own; 128+n when signal n ended it, 124 when
	// its time ran out, 137 when its memory did.
	ExitCode int
	// Signal is the name of the signal that ended it ("SIGKILL"), if one did. Of
	// one whose time ran out it is left out, unless it was asked to end first.
	Signal string
	// TimedOut and OOMKilled are facts of the host.
	TimedOut  bool
	OOMKilled bool
	// Stdout and Stderr hold what was captured.
	Stdout, Stderr Output
	Started        time.Time
	Duration       time.Duration
	// Done is false for an execution that is still going on.
	Done bool
}

// Truncated reports whether either stream was cut.
func (r *Result) Truncated() bool { return r.Stdout.Truncated() || r.Stderr.Truncated() }

// Output is one captured stream: all of it, or its head and its tail.
type Output struct {
	Head, Tail []byte
	// Total is how many bytes the program wrote, kept or not.
	Total int64
}

// Truncated reports whether bytes are missing between Head and Tail.
func (o Output) Truncated() bool { return o.Total > int64(len(o.Head)+len(o.Tail)) }

// Execution is one Exec as it is remembered.
type Execution struct {
	Sandbox ID
	Command Command
	Result
}

// LogOptions selects from a sandbox's log.
type LogOptions struct {
	// Tail keeps the last n lines; 0 keeps all.
	Tail int
	// Times puts before every line when it was begun, as LogTime does.
	Times bool
}

// LogTime is a moment as it stands before a line of a log: in UTC, with
// milliseconds and a space behind.
func LogTime(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z ") }

// CutLogTime takes the moment off a line of a log.
func CutLogTime(line string) (at time.Time, rest string, ok bool) {
	stamp, rest, ok := strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339, stamp)
	if !ok || err != nil {
		return time.Time{}, line, false
	}
	return at, rest, true
}
