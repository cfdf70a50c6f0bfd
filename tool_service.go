package brig

import "context"

// ToolService runs tools, and keeps what a tenant has said about how.
type ToolService interface {
	// RunTool calls a function in a box of the tenant's: the one that the last
	// call has left, if setup and packages are the same and nobody is in it, or
	// a new one. What the function left running ends with the call.
	RunTool(ctx context.Context, t Tool) (*ToolResult, error)

	// PutToolSetup makes the tenant's setup of a kind, or gives it another
	// configuration: the one with that ID, if there is one, or the one of its
	// kind. A kind cannot become another. Of s nothing else is looked at.
	PutToolSetup(ctx context.Context, s ToolSetup) (*ToolSetup, error)
	// ToolSetups lists the tenant's, by Created.
	ToolSetups(ctx context.Context) ([]*ToolSetup, error)
	// RenewToolSetup ends the boxes of the tenant's setup of a kind: the next
	// call gets a fresh one.
	RenewToolSetup(ctx context.Context, kind ToolKind) (*ToolSetup, error)
	// RemoveToolSetup forgets a setup with its variables, and ends its boxes.
	RemoveToolSetup(ctx context.Context, id string) error

	// PutToolVariable makes a variable of a setup, or gives the one of that key
	// another value and description. The next call of a tool has it.
	PutToolVariable(ctx context.Context, x ToolVariable) (*ToolVariable, error)
	// ChangeToolVariable changes a part of one.
	ChangeToolVariable(ctx context.Context, id string, c ToolVariableChange) (*ToolVariable, error)
	// ToolVariables lists those of a setup with their values, by Created.
	ToolVariables(ctx context.Context, setup string) ([]*ToolVariable, error)
	RemoveToolVariable(ctx context.Context, id string) error
}
