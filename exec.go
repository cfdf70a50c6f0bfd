package brig

import (
	"io"
	"strings"
	"time"
)

// Command is a request to run a process in a sandbox.
type Command struct {
	// Argv is the program and its arguments. No shell parses them.
	Argv []string
	// Shell is a script for the image's shell: /bin/bash if the image has it,
	// otherwise /bin/sh. Exactly one of Argv and Shell is set.
	Shell string
	// Env is added to the sandbox's environment and overrides it.
	Env map[string]string
	// Dir is the working directory. Default: "/workspace".
	Dir string
	// User is "user" (uid 1000, the default), "root" (uid 0), or the IDs of another user and its
	// group, "UID:GID". None of them has any capability.
	User string
	// Timeout is the wall time after which the whole process tree is killed.
	// Default 30 s. Only the lease limits a sandbox's main program.
	Timeout time.Duration
	// Survive keeps the process running when the caller disconnects. Without it, a
	// disconnect kills the process. The end of the server does not kill the
	// process.
	Survive bool
}

// IsDefaultUser reports whether the user of a command, a path or a program is the default one.
func IsDefaultUser(user string) bool { return user == "" || user == "user" }

// IO holds the streams of a Command. Writers apply back-pressure. A nil Stdin
// is empty. If a writer is nil, the Result contains the stream, bounded by
// Limits.Output.
type IO struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Result, if set, receives the bytes that the process writes to descriptor 3.
	Result io.Writer
	// Started, if set, is called once with the ID of the execution when its
	// process starts.
	Started func(execID string)
}

// Result describes how a process ended. A non-zero exit is a result, not an
// error.
type Result struct {
	// ExecID identifies the execution for ListExecs and GetExec.
	ExecID string
	// ExitCode is the program's exit code; 128+n if signal n ended it, 124 if it
	// exceeded its time, and 137 if it exceeded its memory.
	ExitCode int
	// Signal is the name of the signal that ended the process ("SIGKILL"), if
	// any. It is empty for a process that exceeded its time, unless that process
	// was first sent SIGTERM.
	Signal string
	// TimedOut and OOMKilled are determined by the host, not by the guest.
	TimedOut  bool
	OOMKilled bool
	// SandboxEnded is the reason for the end of the sandbox, if that ended the
	// program; otherwise it is empty.
	SandboxEnded ExitReason
	// Stdout and Stderr are the captured output.
	Stdout, Stderr Output
	Started        time.Time
	Duration       time.Duration
	// Done is false while the execution is running.
	Done bool
}

// Truncated reports whether either stream was truncated.
func (r *Result) Truncated() bool { return r.Stdout.Truncated() || r.Stderr.Truncated() }

// Output is one captured stream: the whole stream, or its head and its tail.
type Output struct {
	Head, Tail []byte
	// Total is the number of bytes that the program wrote, including those that
	// were dropped.
	Total int64
}

// Truncated reports whether bytes are missing between Head and Tail.
func (o Output) Truncated() bool { return o.Total > int64(len(o.Head)+len(o.Tail)) }

// Execution is the record of one Exec.
type Execution struct {
	Sandbox ID
	Command Command
	Result
	// Draining means that the program has ended, but the execution is not done, because the
	// program's children may still write output. It is never stored.
	Draining bool `json:",omitzero"`
}

// LogOptions selects the part and the format of a sandbox's log.
type LogOptions struct {
	// Tail is the number of last lines to return; 0 returns all lines.
	Tail int
	// Times prefixes every line with its start time, in the format of LogTime.
	Times bool
	// Follow keeps the log open for further output until the sandbox ends. The open log counts as
	// use of the sandbox.
	Follow bool
}

// LogTime formats the time prefix of a log line: in UTC, with milliseconds and
// a trailing space.
func LogTime(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z ") }

// CutLogTime removes the time prefix from a log line.
func CutLogTime(line string) (at time.Time, rest string, ok bool) {
	stamp, rest, ok := strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339, stamp)
	if !ok || err != nil {
		return time.Time{}, line, false
	}
	return at, rest, true
}
