package brig

import (
	"context"
	"io"
)

// Process is a program that runs in an instance. A process with a channel
// exchanges messages with the host on descriptor 3, one per line, separate from
// its output. If no goroutine reads its output, the program continues until a
// pipe is full. Methods are safe for concurrent use, except that only one
// goroutine at a time may call Receive.
type Process interface {
	ProcessStream
	ProcessControl
}

// ProcessStream carries a process's input, output and messages.
type ProcessStream interface {
	// Send writes one message.
	Send(message []byte) error
	// Receive returns the next part of the output or the next message. Output
	// that was written before a message is returned before it. Receive returns
	// io.EOF when the program has ended and all data was read. Without a channel
	// it returns io.EOF when every process that holds the output has closed it.
	// The slice is valid until the next call.
	Receive() (From, []byte, error)
	// Stdin is the program's standard input, or the input of its terminal.
	Stdin() io.WriteCloser
	// Close detaches from the program without ending it.
	Close() error
}

// ProcessControl signals a process and waits for its end.
type ProcessControl interface {
	// PID returns the process ID inside the instance.
	PID() int
	// Resize sets the size of the process's terminal.
	Resize(ctx context.Context, size Terminal) error
	// Signal sends a signal ("SIGINT") to the program and its children.
	Signal(ctx context.Context, name string) error
	// Kill ends the program and every process that it started.
	Kill(ctx context.Context) error
	// Wait waits for the program's end and returns its result.
	Wait(ctx context.Context) (*Result, error)
}

// MessageBudget bounds the messages of processes that were not yet received. A Process whose
// messages the server buffers has the method LimitMessages(MessageBudget).
type MessageBudget interface {
	// Charge takes n bytes from the budget, or returns false if fewer than n bytes
	// are left.
	Charge(n int) bool
	// Refund returns n bytes that were charged.
	Refund(n int)
}

// From is the source of data that Receive returns.
type From int

// The sources of data.
const (
	FromStdout From = iota + 1
	FromStderr
	FromMessage
)

// KeptProcess is a process that outlived a server, with the note that was stored with
// it.
type KeptProcess struct {
	ID   string
	Note []byte
	Process
}
