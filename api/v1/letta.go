package v1

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// Prefixes of Letta's ids.
const (
	LettaConfigID   = "sandbox-"
	LettaVariableID = "sandbox-env-"
)

// LettaRun is the request to call a tool. The fields after npm_requirements are
// Brig extensions.
type LettaRun struct {
	Source     string            `json:"source_code"`
	Arguments  json.RawMessage   `json:"args"`
	Env        map[string]string `json:"env_vars,omitempty"`
	Name       *string           `json:"name,omitempty"`
	SourceType *string           `json:"source_type,omitempty"`
	ArgsSchema json.RawMessage   `json:"args_json_schema,omitempty"`
	Schema     json.RawMessage   `json:"json_schema,omitempty"`
	Python     []LettaPackage    `json:"pip_requirements,omitempty"`
	Node       []LettaPackage    `json:"npm_requirements,omitempty"`

	State     json.RawMessage `json:"agent_state,omitempty"`
	Limit     int             `json:"return_char_limit,omitempty"`
	TimeoutMS int64           `json:"timeout_ms,omitempty"`
}

// LettaPackage is a package that a tool needs.
type LettaPackage struct {
	Name    string  `json:"name"`
	Version *string `json:"version,omitempty"`
}

// LettaReturn is the result of a tool call, in the format of an agent's
// message. The fields after tool_returns are fields of Letta's
// ToolExecutionResult and Brig extensions.
type LettaReturn struct {
	ID          string        `json:"id"`
	Date        time.Time     `json:"date"`
	Name        *string       `json:"name"`
	MessageType string        `json:"message_type"`
	ToolReturn  string        `json:"tool_return"`
	Status      string        `json:"status"`
	ToolCallID  string        `json:"tool_call_id"`
	Stdout      []string      `json:"stdout"`
	Stderr      []string      `json:"stderr"`
	ToolReturns []LettaOneOut `json:"tool_returns"`

	Value       json.RawMessage    `json:"func_return"`
	State       json.RawMessage    `json:"agent_state"`
	Fingerprint string             `json:"sandbox_config_fingerprint"`
	Sandbox     string             `json:"sandbox"`
	Reused      bool               `json:"sandbox_reused"`
	Error       *brig.ProgramError `json:"error_detail,omitempty"`
	ExitCode    int                `json:"exit_code"`
	TimedOut    bool               `json:"timed_out"`
	DurationMS  int64              `json:"duration_ms"`
}

// LettaOneOut repeats the result in the format that newer clients expect.
type LettaOneOut struct {
	Type       string   `json:"type"`
	ToolReturn string   `json:"tool_return"`
	Status     string   `json:"status"`
	ToolCallID string   `json:"tool_call_id"`
	Stdout     []string `json:"stdout"`
	Stderr     []string `json:"stderr"`
}

// LettaConfig is a tool setup.
type LettaConfig struct {
	ID           string          `json:"id"`
	Type         string          `json:"type"`
	Organization string          `json:"organization_id"`
	Config       json.RawMessage `json:"config"`
	CreatedBy    string          `json:"created_by_id"`
	UpdatedBy    string          `json:"last_updated_by_id"`
	Created      time.Time       `json:"created_at"`
	Updated      time.Time       `json:"updated_at"`
}

// LettaConfigBody is the body of a request to create or change a tool setup.
// Type is a Brig extension. If Type is empty, the form of Config determines the
// kind.
type LettaConfigBody struct {
	Config json.RawMessage `json:"config,omitempty"`
	Type   string          `json:"type,omitempty"`
}

// LettaVariable is an environment variable of a tool setup.
type LettaVariable struct {
	ID           string    `json:"id"`
	Key          string    `json:"key"`
	Value        string    `json:"value"`
	Description  *string   `json:"description"`
	Config       string    `json:"sandbox_config_id"`
	Organization string    `json:"organization_id"`
	CreatedBy    string    `json:"created_by_id"`
	UpdatedBy    string    `json:"last_updated_by_id"`
	Created      time.Time `json:"created_at"`
	Updated      time.Time `json:"updated_at"`
}

// LettaVariableBody is the body of a request to create or change a variable.
type LettaVariableBody struct {
	Key         *string `json:"key,omitempty"`
	Value       *string `json:"value,omitempty"`
	Description *string `json:"description,omitempty"`
}

// LettaProblem is an error. Brig's own client reads the field Error.
type LettaProblem struct {
	TraceID  string   `json:"trace_id,omitempty"`
	Detail   any      `json:"detail"` // text, or a list of LettaComplaint values
	Examples []string `json:"examples,omitempty"`
	Error    Error    `json:"error"`
}

// LettaComplaint is an error in one field.
type LettaComplaint struct {
	Type string   `json:"type"`
	Loc  []string `json:"loc"`
	Msg  string   `json:"msg"`
}

// FromToolSetup converts s to its wire type. organization is the id of its
// tenant.
func FromToolSetup(s *brig.ToolSetup, organization string) LettaConfig {
	return LettaConfig{
		ID: LettaConfigID + s.ID, Type: string(s.Kind), Organization: organization, Config: s.Config,
		CreatedBy: s.CreatedBy, UpdatedBy: s.UpdatedBy, Created: s.Created, Updated: s.Updated,
	}
}

// Domain converts c to its domain type.
func (c LettaConfig) Domain() *brig.ToolSetup {
	return &brig.ToolSetup{
		ID: strings.TrimPrefix(c.ID, LettaConfigID), Kind: brig.ToolKind(c.Type), Config: c.Config,
		CreatedBy: c.CreatedBy, UpdatedBy: c.UpdatedBy, Created: c.Created, Updated: c.Updated,
	}
}

// FromToolVariable converts x to its wire type.
func FromToolVariable(x *brig.ToolVariable, organization string) LettaVariable {
	v := LettaVariable{
		ID: LettaVariableID + x.ID, Key: x.Key, Value: x.Value, Config: LettaConfigID + x.Setup, Organization: organization,
		CreatedBy: x.CreatedBy, UpdatedBy: x.UpdatedBy, Created: x.Created, Updated: x.Updated,
	}
	if x.Description != "" {
		v.Description = &x.Description
	}
	return v
}

// Domain converts v to its domain type.
func (v LettaVariable) Domain() *brig.ToolVariable {
	x := &brig.ToolVariable{
		ID: strings.TrimPrefix(v.ID, LettaVariableID), Setup: strings.TrimPrefix(v.Config, LettaConfigID), Key: v.Key, Value: v.Value,
		CreatedBy: v.CreatedBy, UpdatedBy: v.UpdatedBy, Created: v.Created, Updated: v.Updated,
	}
	if v.Description != nil {
		x.Description = *v.Description
	}
	return x
}
