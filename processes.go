package brig

import (
	"context"
	"time"
)

// Processes manages the background processes of one sandbox. They end with the
// sandbox, not with the call that started them.
//
// A process is addressed by its ID inside the sandbox. Methods return NotFound
// for an unknown ID.
type Processes interface {
	// Start starts a process. The newest 256 KiB of its output are buffered.
	// Until a caller attaches, for up to five seconds, the process blocks when
	// the buffer is full, so that the caller misses no output.
	Start(ctx context.Context, spec ProcessSpec) (*ProcessInfo, error)
	// List returns the running and recently ended processes, oldest first.
	List(ctx context.Context) ([]*ProcessInfo, error)
	// Attach calls on with a process's output from an offset, then with its end,
	// and returns. Offset -1 skips existing output. If the output at the offset
	// is no longer buffered, Attach begins with the oldest buffered part.
	// Several callers can attach concurrently; the slowest determines the speed.
	// Attach ends when ctx ends or on returns an error.
	Attach(ctx context.Context, pid int, from int64, on func(ProcessEvent) error) error
	// WriteInput writes to a process's standard input or its terminal. It returns
	// FailedPrecondition if neither is open.
	WriteInput(ctx context.Context, pid int, p []byte) error
	// CloseInput closes the standard input. It cannot close the input of a
	// terminal.
	CloseInput(ctx context.Context, pid int) error
	// Signal sends a signal ("SIGTERM") to the process and its group. SIGKILL
	// also kills all processes that it started.
	Signal(ctx context.Context, pid int, name string) error
	// Resize sets the size of a process's terminal.
	Resize(ctx context.Context, pid int, size Terminal) error
}

// ProcessSpec is a request for a process.
type ProcessSpec struct {
	// Command is the command. A zero Timeout means no timeout.
	Command Command
	// Terminal connects the standard streams to a terminal of this size; if it is
	// nil, they are pipes.
	Terminal *Terminal
	// NoInput makes the standard input empty; otherwise it remains open.
	NoInput bool
	// Tag is the caller's name for the process.
	Tag string
}

// Terminal is the size of a terminal, in characters.
type Terminal struct{ Columns, Rows uint16 }

// ProcessInfo describes one process.
type ProcessInfo struct {
	PID     int
	Spec    ProcessSpec
	Started time.Time
	// Written is the total number of output bytes.
	Written int64
	// Result is the result of the process; nil while it runs.
	Result *Result
}

// ProcessEvent is an event of a process. One of its fields is set.
type ProcessEvent struct {
	// Output is a part of the output that begins at Offset. From is its stream; a
	// terminal's stream is FromStdout.
	Output []byte
	From   From
	Offset int64
	// End is the result of the process.
	End *Result
}

// Streams configure the streams of a process that an Instance starts.
type Streams struct {
	// Channel opens descriptor 3 for messages.
	Channel bool
	// Terminal connects the standard streams to a terminal of this size, whose
	// output is FromStdout.
	Terminal *Terminal
}
