package wire

import (
	"encoding/json"
	"time"
)

// The events of running code, beside stdout and stderr. EventCodeStarted is
// the first, and comes when the code's turn has come.
const (
	EventCodeStarted = "code_started" // CodeStarted
	EventOutput      = "output"       // Rich
	EventException   = "exception"    // Exception
)

// ContextRequest asks for an interpreter that keeps its variables.
type ContextRequest struct {
	Language string            `json:"language,omitempty" doc:"python (the default), javascript, typescript, bash, or a Jupyter kernel of the image"`
	Cwd      string            `json:"cwd,omitempty" doc:"working directory; default /workspace"`
	Env      map[string]string `json:"env,omitempty" doc:"added to the sandbox's environment"`
}

// Context is an interpreter in a sandbox that keeps its variables.
type Context struct {
	ID       string            `json:"id"`
	Sandbox  string            `json:"sandbox" doc:"id of its sandbox"`
	Language string            `json:"language"`
	Cwd      string            `json:"cwd"`
	Env      map[string]string `json:"env,omitempty"`
	State    string            `json:"state" doc:"idle, busy, or dead: its interpreter ended, and the next run starts another"`
	Flavor   string            `json:"flavor" doc:"what interprets: cpython, node, bash or jupyter"`
	Version  string            `json:"version" doc:"of the interpreter"`
	Count    int               `json:"execution_count" doc:"runs since it was started"`
	Created  time.Time         `json:"created"`
}

// Contexts is a list of contexts, oldest first.
type Contexts struct {
	Contexts []Context `json:"contexts" nullable:"false"`
}

// CodeRequest asks for code to be run in a context.
type CodeRequest struct {
	Code      string            `json:"code" doc:"source code"`
	Context   string            `json:"context_id,omitempty" doc:"the context's id; without one the sandbox's default context of the language is used"`
	Language  string            `json:"language,omitempty" doc:"python (the default), javascript, typescript, bash, or a Jupyter kernel of the image; not beside context_id"`
	Env       map[string]string `json:"env,omitempty" doc:"set for this run and taken back after it"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" doc:"wall time, counted from its turn, after which it is interrupted"`
	Stream    bool              `json:"stream,omitempty" doc:"answer with events while the code runs"`
}

// CodeStarted says that code is being run.
type CodeStarted struct {
	Context string `json:"context_id"`
	Count   int    `json:"execution_count"`
}

// Rich is one value in several forms.
type Rich struct {
	Data map[string]json.RawMessage `json:"data" doc:"the value by MIME type: a string, base64 for images and PDF, JSON for JSON types"`
	Main bool                       `json:"main" doc:"whether it is the value of the last expression"`
}

// Exception is what ended code.
type Exception struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// CodeAnswer is how code ended.
type CodeAnswer struct {
	Context string `json:"context_id"`
	Count   int    `json:"execution_count"`
	Text    string `json:"text" doc:"the last expression's value as text"`
	Outputs
	Results     []Rich     `json:"results" nullable:"false" doc:"what was displayed and the last expression's value, in order"`
	Error       *Exception `json:"error" doc:"the exception that ended it, if one did"`
	TimedOut    bool       `json:"timed_out"`
	Interrupted bool       `json:"interrupted" doc:"its caller went away"`
	Lost        bool       `json:"lost" doc:"the interpreter ended, and its variables are gone"`
	Started     time.Time  `json:"started"`
	DurationMS  float64    `json:"duration_ms"`
	QueuedMS    float64    `json:"queued_ms" doc:"how long it waited for its turn"`
}

// Shelf is the state of the pool for one kind of sandbox.
type Shelf struct {
	Provider string  `json:"provider,omitempty" doc:"who made what waits"`
	Image    string  `json:"image" doc:"digest"`
	Language string  `json:"language" doc:"of the interpreter that waits; empty for none"`
	Limits   *Limits `json:"limits"`
	Target   int     `json:"target" doc:"how many should wait"`
	Ready    int     `json:"ready"`
	Making   int     `json:"making"`
	Hits     int64   `json:"hits"`
	Misses   int64   `json:"misses"`
	Failed   int64   `json:"failed"`
	RefillMS float64 `json:"refill_ms" doc:"how long it takes to make one: the median of the last ones"`
}

// Pool is what waits to be used.
type Pool struct {
	Shelves []Shelf `json:"shelves" nullable:"false"`
}
