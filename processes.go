package brig

import (
	"context"
	"time"
)

// Processes are the programs that run in one sandbox without anybody waiting
// for them. They end with the sandbox, not with whoever started them.
//
// A process is named by its id inside the sandbox. One of which nothing is
// known any more is NotFound.
type Processes interface {
	// Start starts a process. Of its output the newest 256 KiB are kept; who
	// attaches within five seconds has missed nothing, as until then it waits
	// with what would be more.
	Start(ctx context.Context, spec ProcessSpec) (*ProcessInfo, error)
	// List returns those that run, and those that have ended of late, oldest
	// first.
	List(ctx context.Context) ([]*ProcessInfo, error)
	// Attach tells on what a process writes, from an offset of its output on,
	// then how it ended, and returns. An offset of -1 is what it writes from
	// now on; of what is too old only the newest is told. Several may be
	// attached at once: the slowest sets the pace. It ends with ctx, or with
	// an error of on.
	Attach(ctx context.Context, pid int, from int64, on func(ProcessEvent) error) error
	// Input writes to a process's standard input or its terminal. Without one
	// that is open it is FailedPrecondition.
	Input(ctx context.Context, pid int, p []byte) error
	// CloseInput closes the standard input; a terminal has none to close.
	CloseInput(ctx context.Context, pid int) error
	// Signal sends a signal ("SIGTERM") to the process and its group; SIGKILL
	// ends everything that it started.
	Signal(ctx context.Context, pid int, name string) error
	// Resize tells a process how large its terminal is now.
	Resize(ctx context.Context, pid int, size Terminal) error
}

// ProcessSpec asks for a process.
type ProcessSpec struct {
	// Command is what is run. No Timeout is none.
	Command Command
	// Terminal makes one its standard streams; otherwise they are pipes.
	Terminal *Terminal
	// NoInput gives it an empty standard input; otherwise it stays open.
	NoInput bool
	// Tag is the caller's own name for it.
	Tag string
}

// Terminal is the size of one, in characters.
type Terminal struct{ Columns, Rows uint16 }

// ProcessInfo is one process.
type ProcessInfo struct {
	PID     int
	Spec    ProcessSpec
	Started time.Time
	// Written is how many bytes of output there have been.
	Written int64
	// Result says how it ended; nil while it runs.
	Result *Result
}

// ProcessEvent is something that a process did; one of its fields is set.
type ProcessEvent struct {
	// Output is a part of what it wrote, which begins at Offset. From says
	// where; what a terminal shows is FromStdout.
	Output []byte
	From   From
	Offset int64
	// End is how it ended.
	End *Result
}

// Streams say how a process that an Instance starts is connected.
type Streams struct {
	// Channel opens descriptor 3 for messages.
	Channel bool
	// Terminal makes one its standard streams. Its output is FromStdout.
	Terminal *Terminal
}
