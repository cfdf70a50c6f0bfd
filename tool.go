package brig

import (
	"encoding/json"
	"time"
)

// Tool is one call of a function that an agent may use: its source, which one
// of its functions is meant, and what it is called with. It runs in a box: a
// sandbox that the tenant's tools use one after the other for as long as the
// ToolSetup stays as it is.
type Tool struct {
	// Name is the function's. Default the last one of the source, which only
	// Python has.
	Name string
	// Language is Python (the default) or TypeScript.
	Language Language
	Source   string
	// Arguments is a JSON object. Schema is a JSON schema of it, on its own or
	// as "parameters" of a tool's: by that the arguments get their types, and
	// those that it does not know are left out. TypeScript needs one.
	Arguments, Schema json.RawMessage
	// ArgumentSchema is one of the arguments alone. It says more than Schema,
	// which is for language models, and of which then the name alone counts.
	ArgumentSchema json.RawMessage
	// State is what the agent is, as JSON; nil for none. A function that has a
	// parameter agent_state is given it, and may change it.
	State json.RawMessage
	// Env is set over the variables of the setup.
	Env map[string]string
	// Python and Node are packages that the tool needs beyond the setup's, as
	// pip and npm know them.
	Python, Node []string
	// Limit is how many characters of the returned text come out. Default
	// DefaultToolText.
	Limit int
	// Timeout is wall time. Default 3 minutes, as far as the tenant may.
	Timeout time.Duration
}

// The bounds of the text that a tool returns, in characters.
const (
	DefaultToolText = 50_000
	MaxToolText     = 1_000_000
)

// ToolResult is how a call of a Tool ended. A tool that failed is a result.
type ToolResult struct {
	// Name is the function's, as the call or its schema has it; empty if neither
	// does.
	Name string
	// Value is what the function returned, as JSON. Text is the same as people
	// read it, or what went wrong, within the tool's limit.
	Value json.RawMessage
	Text  string
	// State is the agent's after the call; nil if the function was given none.
	State json.RawMessage
	// Error says what went wrong, if something did.
	Error          *ProgramError
	Stdout, Stderr Output
	// Fingerprint is that of the setup, as Letta's clients know it.
	Fingerprint string
	// Sandbox is the box's name, and Reused says that it was there before.
	Sandbox  string
	Reused   bool
	ExitCode int
	TimedOut bool
	Duration time.Duration
}

// ToolKind is a kind of ToolSetup. All of them run here: they differ in what
// their configurations say.
type ToolKind string

// The kinds, in the order in which a tenant's tools look for one.
const (
	ToolE2B   ToolKind = "e2b"
	ToolModal ToolKind = "modal"
	ToolLocal ToolKind = "local"
)

// ToolKinds lists them.
var ToolKinds = []ToolKind{ToolE2B, ToolModal, ToolLocal}

// ToolSetup says how a tenant's tools are run. A tenant has one of each kind.
type ToolSetup struct {
	ID     string
	Tenant string
	Kind   ToolKind
	// Config is a JSON object with every field of its kind.
	Config           json.RawMessage
	Created, Updated time.Time
	// CreatedBy and UpdatedBy are names of actors.
	CreatedBy, UpdatedBy string
}

// ToolVariable is a variable that all tools of a setup get. Its key is unique
// there.
type ToolVariable struct {
	ID, Setup            string
	Tenant               string
	Key                  string
	Value                string `json:"-"`
	Description          string
	Created, Updated     time.Time
	CreatedBy, UpdatedBy string
}

// SealedToolVariable is a variable as it is kept: its Value is empty, and
// Sealed has it, encrypted under a key that the store does not know.
type SealedToolVariable struct {
	ToolVariable
	SealedBy string // names the key
	Sealed   []byte
}

// ToolVariableChange changes what is not nil.
type ToolVariableChange struct{ Key, Value, Description *string }
