package brig

import (
	"encoding/json"
	"time"
)

// ContextSpec is a request for a CodeContext.
type ContextSpec struct {
	// Language is the interpreter's language: one of Languages, or the name or
	// language of a Jupyter kernel of the image. Default: python.
	Language Language
	// Dir is the working directory. Default: "/workspace".
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
	// Flavor is the interpreter: "cpython" (with IPython, if the image has it),
	// "node", "bash" or "jupyter". Version is its version.
	Flavor, Version string
	// Count is the number of runs since the interpreter started.
	Count   int
	Created time.Time
}

// ContextState is the state of a CodeContext.
type ContextState string

// The states of a CodeContext.
const (
	ContextIdle ContextState = "idle"
	ContextBusy ContextState = "busy" // runs code; more runs may be queued
	ContextDead ContextState = "dead" // the interpreter ended; the next run starts another
)

// Code is a request to run a piece of code in a CodeContext.
type Code struct {
	// Context is the context's ID. Empty means the sandbox's default context of
	// Language, which its first use creates.
	Context  string
	Language Language
	Source   string
	// Uncounted excludes the run from the number of runs of a Python context. It
	// has no effect on other interpreters.
	Uncounted bool
	// Env is set for this run only.
	Env map[string]string
	// Timeout is the wall time after which the run is interrupted. If the code
	// ignores the interrupt, the interpreter ends and its variables are lost.
	// Default 30 s.
	Timeout time.Duration
}

// CodeEvent is an event of running code. Exactly one field is set. A listener
// ignores events whose field is unknown to it.
type CodeEvent struct {
	Started *CodeResult // the run has started: Context and Count are known
	Stdout  []byte
	Stderr  []byte
	Output  *Rich
	Cleared *ClearRequest // the code declares its previous output obsolete
	Error   *CodeError
}

// ClearRequest is a request by running code to clear its displayed output, as in notebooks. It
// does not affect the outputs in the result.
type ClearRequest struct {
	// Wait delays the clearing until the next output arrives.
	Wait bool
}

// CodeResult is the result of a run of code.
type CodeResult struct {
	Context string
	// Count is the number of this run in its context.
	Count int
	// Stdout and Stderr are the captured output, bounded by Limits.Output.
	Stdout, Stderr Output
	// Outputs are the displayed values and the value of the last expression, in
	// order, bounded by MaxOutputs. Event listeners also receive the values
	// beyond the bound.
	Outputs []Rich
	// Error is the exception that ended the code, if any.
	Error *CodeError
	// TimedOut and Interrupted report that the code was stopped. Lost reports that
	// the interpreter ended, and that its variables are lost.
	TimedOut, Interrupted, Lost bool
	// OOMKilled and SandboxEnded have the same meaning as in Result.
	OOMKilled    bool
	SandboxEnded ExitReason
	Started      time.Time
	Duration     time.Duration
	// Queued is the duration that the run waited in the queue.
	Queued time.Duration
}

// Rich is one value in several representations.
type Rich struct {
	// Data maps MIME types to representations: a JSON string, base64 for images
	// and PDF, and any JSON for JSON types.
	Data map[string]json.RawMessage
	// Main marks the value of the last expression.
	Main bool
	// Metadata describes the representations, for example the size of an image.
	Metadata map[string]json.RawMessage
	// DisplayID is the ID of a display that the code may update. An event with
	// Update replaces the values with the same ID. A result contains only the last
	// update of a display. Update is set there if an earlier run displayed the
	// original value.
	DisplayID string
	Update    bool
}

// CodeError is the exception that ended a run of code.
type CodeError struct {
	Name      string
	Value     string
	Traceback string
}

// Limits on the displayed values of one run.
const (
	MaxOutputs    = 256      // number of values
	MaxOutputSize = 32 * MiB // total bytes
)

// PoolUse is the origin of a sandbox: the warm pool, or a fresh start.
type PoolUse string

// The origins of sandboxes. The origin is empty if the server has no pool.
const (
	PoolHit  PoolUse = "hit"  // a pooled sandbox was ready
	PoolMiss PoolUse = "miss" // none was ready, so a new one was created
)

// PoolClass is the state of the pool for one class of sandboxes.
type PoolClass struct {
	Provider string // provider of the sandboxes
	Image    string // digest of the image
	Language Language
	Limits   Limits
	// Target is the desired number of ready sandboxes. Ready is the current
	// number, and Making is the number being created.
	Target, Ready, Making int
	Hits, Misses, Failed  int64
	// Refill is the median of the recent creation times.
	Refill time.Duration
}
