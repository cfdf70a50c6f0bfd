package brig

import "context"

// ToolService runs tools and manages the tenant's setups for them.
type ToolService interface {
	ToolRunService
	ToolVariableService
}

// ToolRunService runs tools and manages setups.
type ToolRunService interface {
	// RunTool calls a function in a sandbox of the tenant. It reuses the sandbox of
	// the last call if setup and packages are the same and no other call uses the
	// sandbox; otherwise it creates a new one. Processes that the function left
	// running are ended with the call.
	RunTool(ctx context.Context, t Tool) (*ToolResult, error)

	// PutToolSetup creates the tenant's setup of a kind, or replaces the
	// configuration of an existing one: the setup with the ID of s, if set, or else
	// the setup of the same kind. The kind of a setup cannot change. Other fields
	// of s are ignored.
	PutToolSetup(ctx context.Context, s ToolSetup) (*ToolSetup, error)
	// ToolSetups lists the tenant's setups by Created.
	ToolSetups(ctx context.Context) ([]*ToolSetup, error)
	// RenewToolSetup ends the sandboxes of the tenant's setup of a kind, so that
	// the next call gets a new one.
	RenewToolSetup(ctx context.Context, kind ToolKind) (*ToolSetup, error)
	// RemoveToolSetup deletes a setup with its variables and ends its sandboxes.
	RemoveToolSetup(ctx context.Context, id string) error
}

// ToolVariableService manages the variables of tool setups.
type ToolVariableService interface {
	// PutToolVariable creates a variable of a setup, or replaces the value and
	// description of the one with the same key. The change applies from the next
	// call of a tool.
	PutToolVariable(ctx context.Context, x ToolVariable) (*ToolVariable, error)
	// ChangeToolVariable changes the fields that c sets.
	ChangeToolVariable(ctx context.Context, id string, c ToolVariableChange) (*ToolVariable, error)
	// ToolVariables lists a setup's variables with their values, by Created.
	ToolVariables(ctx context.Context, setup string) ([]*ToolVariable, error)
	RemoveToolVariable(ctx context.Context, id string) error
}
