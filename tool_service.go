package brig

import "context"

// ToolService runs tools and manages the tenant's set-ups for them.
type ToolService interface {
	ToolRunService
	ToolVariableService
}

// ToolRunService runs tools and manages set-ups.
type ToolRunService interface {
	// RunTool calls a function in a sandbox of the tenant. It reuses the
	// sandbox of the last call if set-up and packages are the same and no other
	// call uses it; otherwise it creates a new one. Processes that the function
	// left running end with the call.
	RunTool(ctx context.Context, t Tool) (*ToolResult, error)

	// PutToolSetup creates the tenant's set-up of a kind, or replaces the
	// configuration of an existing one. It replaces the set-up with the ID of
	// s, if s has an ID, or else the set-up of the same kind. The kind of a
	// set-up cannot change. Other fields of s are ignored.
	PutToolSetup(ctx context.Context, s ToolSetup) (*ToolSetup, error)
	// ToolSetups lists the tenant's set-ups by Created.
	ToolSetups(ctx context.Context) ([]*ToolSetup, error)
	// RenewToolSetup ends the sandboxes of the tenant's set-up of a kind: the next
	// call gets a new one.
	RenewToolSetup(ctx context.Context, kind ToolKind) (*ToolSetup, error)
	// RemoveToolSetup deletes a set-up with its variables and ends its sandboxes.
	RemoveToolSetup(ctx context.Context, id string) error
}

// ToolVariableService manages the variables of tool set-ups.
type ToolVariableService interface {
	// PutToolVariable creates a variable of a set-up, or replaces the value and
	// description of the one with that key. The next call of a tool uses it.
	PutToolVariable(ctx context.Context, x ToolVariable) (*ToolVariable, error)
	// ChangeToolVariable changes the fields that c sets.
	ChangeToolVariable(ctx context.Context, id string, c ToolVariableChange) (*ToolVariable, error)
	// ToolVariables lists a set-up's variables with their values, by Created.
	ToolVariables(ctx context.Context, setup string) ([]*ToolVariable, error)
	RemoveToolVariable(ctx context.Context, id string) error
}
