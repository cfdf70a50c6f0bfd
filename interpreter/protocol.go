package interpreter

import "encoding/json"

// Order is what a driver is told to do.
type Order struct {
	Op    string `json:"op"` // "warm", "ping", "chdir", "cell", "step", "program"
	Nonce string `json:"nonce,omitempty"`
	// Code is the source of a cell, a step or a program.
	Code string `json:"code,omitempty"`
	// Env is set for a cell and taken back after it; for a program it is set.
	Env map[string]string `json:"env,omitempty"`
	// Dir is the working directory to change to first, if any.
	Dir string `json:"cwd,omitempty"`
	// Arguments is a JSON object for a program's main, nil for none.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Artifacts has the folder artifacts/ be there when a program starts, and be
	// taken away if nothing was put there.
	Artifacts bool `json:"artifacts,omitempty"`
	// Limits are resource limits that a program takes on before it runs:
	// "nproc" and "nofile".
	Limits map[string]uint64 `json:"limits,omitempty"`
	// State is what the steps before a step have left, and Count how many there
	// were: a step is a cell whose driver has seen none of those before it.
	State json.RawMessage `json:"state,omitempty"`
	Count int             `json:"count,omitempty"`
	// Packages are directories of packages for a step, Carried says that those
	// which it asks for are there in the next one, and Uncarried why those of
	// the steps before are not.
	Packages  []string `json:"packages,omitempty"`
	Carried   bool     `json:"carried,omitempty"`
	Uncarried string   `json:"uncarried,omitempty"`
}

// Message is what a driver says.
type Message struct {
	Type  string `json:"type"` // "ready", "pong", "started", "display", "result", "error", "installed", "end"
	Nonce string `json:"nonce,omitempty"`

	// Of ready: the interpreter's version, and what it is ("cpython",
	// "ipython", "node", "bash", "jupyter").
	Version string `json:"version,omitempty"`
	Flavor  string `json:"flavor,omitempty"`

	// Of started: how many cells there have been, this one included.
	Count int `json:"count,omitempty"`

	// Of display and result: one value in several forms by MIME type. Text
	// types and SVG are strings, images and PDF are base64, JSON types are
	// JSON values.
	Data map[string]json.RawMessage `json:"data,omitempty"`

	// Of error.
	Name      string `json:"name,omitempty"`
	Value     string `json:"value,omitempty"`
	Traceback string `json:"traceback,omitempty"`

	// Of installed: the requirements that a step has asked pip for.
	Packages []string `json:"packages,omitempty"`

	// Of a program's end: its exit code, what main returned, how it failed,
	// and whether there is anything in artifacts/.
	Code      int             `json:"code,omitempty"`
	Returned  json.RawMessage `json:"returned,omitempty"`
	Failure   *Failure        `json:"failure,omitempty"`
	Artifacts bool            `json:"artifacts,omitempty"`

	// Of a step's end: what it leaves for the next.
	State json.RawMessage `json:"state,omitempty"`
}

// Failure is how a program's own exception ended it.
type Failure struct {
	Name      string `json:"name"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

// The MIME types of our own: the rows of a data frame, and what a chart shows.
const (
	TypeFrame = "application/vnd.brig.frame+json"
	TypeChart = "application/vnd.brig.chart+json"
)
