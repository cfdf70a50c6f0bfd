package brig

import (
	"context"
	"io"
)

// Process is a program that runs in an instance. One with a channel talks with
// the host by messages on its descriptor 3, each one line, apart from its
// output. It goes on when nobody listens, until a pipe is full. Methods may be
// called from several goroutines, Receive from one at a time.
type Process interface {
	// PID is its id inside the instance.
	PID() int
	// Send writes one message.
	Send(message []byte) error
	// Receive returns what comes next: a part of the output, or one message.
	// Output that was written before a message comes before it. It returns
	// io.EOF when the program is gone and all has been read; without a channel,
	// when everything that holds its output is gone. What it returns is only
	// valid until the next call.
	Receive() (From, []byte, error)
	// Stdin is the program's standard input, or what its terminal reads.
	Stdin() io.WriteCloser
	// Resize tells it how large its terminal is.
	Resize(ctx context.Context, size Terminal) error
	// Signal sends a signal ("SIGINT") to the program and its children.
	Signal(ctx context.Context, name string) error
	// Kill ends the program and everything that it started.
	Kill(ctx context.Context) error
	// Wait says how the program ended, when it has.
	Wait(ctx context.Context) (*Result, error)
	// Close lets go of the program without ending it.
	Close() error
}

// From tells where a part of what a Process sends comes from.
type From int

// The sources.
const (
	FromStdout From = iota + 1
	FromStderr
	FromMessage
)

// Kept is a process that was kept over a server's death, and the note that
// went with it.
type Kept struct {
	ID   string
	Note []byte
	Process
}
