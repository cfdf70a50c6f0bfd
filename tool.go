package brig

import (
	"encoding/json"
	"time"
)

// Tool is one function call for an agent: the source, the name of the function, and
// the arguments. Tools run one at a time in a sandbox that the tenant's tools share
// until the ToolSetup changes.
type Tool struct {
	// Name is the name of the function. Default: the last function of the source;
	// Python only.
	Name string
	// Language is Python (the default) or TypeScript.
	Language Language
	Source   string
	// Arguments is a JSON object. Schema is its JSON schema, either alone or as
	// "parameters" of a tool's schema. The schema determines the types of the
	// arguments; arguments that are not in the schema are dropped. TypeScript
	// requires a schema.
	Arguments, Schema json.RawMessage
	// ArgumentSchema is the schema of the arguments alone. It is more precise
	// than Schema, which is written for language models. If it is set, only the
	// name in Schema is used.
	ArgumentSchema json.RawMessage
	// State is the agent's state as JSON; nil for none. A function with a
	// parameter agent_state receives the state and can change it.
	State json.RawMessage
	// Env overrides the variables of the setup.
	Env map[string]string
	// Python and Node are packages in addition to the setup's, in the syntax of
	// pip and npm.
	Python, Node []string
	// Limit is the maximum number of characters of the returned text. Default
	// DefaultToolText.
	Limit int
	// Timeout is the wall time after which the call is ended. Default: 3 minutes,
	// limited by the tenant's maximum.
	Timeout time.Duration
}

// Limits on the text that a tool returns, in characters.
const (
	DefaultToolText = 50_000
	MaxToolText     = 1_000_000
)

// ToolResult is the result of a call of a Tool. A failed tool is a result, not
// an error.
type ToolResult struct {
	// Name is the name of the function in the call or its schema; empty if
	// neither has one.
	Name string
	// Value is the function's return value as JSON. Text is its human-readable
	// form, or the error, within the tool's limit.
	Value json.RawMessage
	Text  string
	// State is the agent's state after the call; nil if the function received
	// none.
	State json.RawMessage
	// Error is the function's error, if any.
	Error          *ProgramError
	Stdout, Stderr Output
	// Fingerprint is the fingerprint of the setup in Letta's format.
	Fingerprint string
	// Sandbox is the name of the sandbox. Reused is true if it existed before
	// the call.
	Sandbox  string
	Reused   bool
	ExitCode int
	TimedOut bool
	Duration time.Duration
}

// ToolKind is a kind of ToolSetup. Tools of all kinds run on Brig; the kinds differ
// in the format of their configurations.
type ToolKind string

// The kinds of tool setups, in order of precedence.
const (
	ToolE2B   ToolKind = "e2b"
	ToolModal ToolKind = "modal"
	ToolLocal ToolKind = "local"
)

// ToolKinds lists the kinds.
var ToolKinds = []ToolKind{ToolE2B, ToolModal, ToolLocal}

// ToolSetup configures how a tenant's tools run. A tenant has at most one setup of
// each kind.
type ToolSetup struct {
	ID     string
	Tenant string
	Kind   ToolKind
	// Config is a JSON object with every field of the setup's kind.
	Config           json.RawMessage
	Created, Updated time.Time
	// CreatedBy and UpdatedBy are the names of actors.
	CreatedBy, UpdatedBy string
}

// ToolVariable is a variable for all tools of a setup. Its key is unique within
// the setup.
type ToolVariable struct {
	ID, Setup            string
	Tenant               string
	Key                  string
	Value                string `json:"-"`
	Description          string
	Created, Updated     time.Time
	CreatedBy, UpdatedBy string
}

// SealedToolVariable is the stored form of a variable: its Value is empty, and
// Sealed contains the value, encrypted with a key that the store does not have.
type SealedToolVariable struct {
	ToolVariable
	SealedBy string // name of the encryption key
	Sealed   []byte
}

// ToolVariableChange is a change of a ToolVariable. Nil fields keep their values.
type ToolVariableChange struct{ Key, Value, Description *string }
