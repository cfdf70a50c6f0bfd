package brig

import (
	"encoding/json"
	"time"
)

// ContextSpec asks for a CodeContext.
type ContextSpec struct {
	// Language is what it interprets: one of Languages, or the name or the
	// language of a Jupyter kernel that the image has. Default python.
	Language Language
	// Dir is its working directory. Default "/workspace".
	Dir string
	// Env is added to the sandbox's environment.
	Env map[string]string
}

// CodeContext is an interpreter in a sandbox that keeps its variables from
// one run of code to the next. It ends with its sandbox.
type CodeContext struct {
	ID      string
	Sandbox ID
	Spec    ContextSpec
	State   ContextState
	// Flavor is what interprets: "cpython" (with IPython, where the image has
	// it), "node", "bash" or "jupyter"; Version is its version.
	Flavor, Version string
	// Count is how many runs there have been since it was started.
	Count   int
	Created time.Time
}

// ContextState is what a CodeContext is doing.
type ContextState string

// The states of a CodeContext.
const (
	ContextIdle ContextState = "idle"
	ContextBusy ContextState = "busy" // it runs code, and more may wait
	ContextDead ContextState = "dead" // its interpreter ended; the next run starts another
)

// Code is one piece of code to run in a CodeContext.
type Code struct {
	// Context is the context's id. Empty means the sandbox's default context
	// of Language, which is made when it is first used.
	Context  string
	Language Language
	Source   string
	// Env is set for this run and taken back after it.
	Env map[string]string
	// Timeout is wall time from the moment in which it starts to run. It
	// interrupts the code; what does not heed that loses the interpreter with
	// its variables. Default 30 s.
	Timeout time.Duration
}

// CodeEvent is one thing that happened while code ran. Exactly one field is
// set.
type CodeEvent struct {
	Started *CodeResult // its turn has come: Context and Count are known
	Stdout  []byte
	Stderr  []byte
	Output  *Rich
	Error   *CodeError
}

// CodeResult is how code ended.
type CodeResult struct {
	Context string
	// Count is the number of this run in its context.
	Count int
	// Stdout and Stderr hold what was captured, bounded by Limits.Output.
	Stdout, Stderr Output
	// Outputs are what was displayed, and the last expression's value, in
	// order; bounded by MaxOutputs. Who follows the run is told of more.
	Outputs []Rich
	// Error is the exception that ended it, if one did.
	Error *CodeError
	// TimedOut, Interrupted: its end was asked for. Lost says that the
	// interpreter and its variables are gone.
	TimedOut, Interrupted, Lost bool
	Started                     time.Time
	Duration                    time.Duration
	// Queued is how long it waited for its turn.
	Queued time.Duration
}

// Rich is one value in several forms.
type Rich struct {
	// Data maps MIME types to the value in that form: a JSON string, base64
	// for images and PDF, and any JSON for JSON types.
	Data map[string]json.RawMessage
	// Main marks the value of the last expression.
	Main bool
}

// CodeError is the exception that ended code.
type CodeError struct {
	Name      string
	Value     string
	Traceback string
}

// Bounds of what one run may bring out.
const (
	MaxOutputs    = 256      // values
	MaxOutputSize = 32 * MiB // bytes of all of them
)

// PoolUse says where a sandbox came from.
type PoolUse string

// Where sandboxes come from. Without a pool it is empty.
const (
	PoolHit  PoolUse = "hit"  // it was waiting
	PoolMiss PoolUse = "miss" // none was waiting, so it was made
)

// PoolShelf is the state of the pool for one kind of sandbox.
type PoolShelf struct {
	Provider string // who made what waits
	Image    string // digest
	Language Language
	Limits   Limits
	// Target is how many should wait; Ready do, and Making are on their way.
	Target, Ready, Making int
	Hits, Misses, Failed  int64
	// Refill is how long it takes to make one: the median of the last ones.
	Refill time.Duration
}
