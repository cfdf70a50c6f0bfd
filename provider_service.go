package brig

import (
	"context"
	"encoding/json"
	"time"
)

// ProviderService is how an operator says which providers there are, and who
// uses which. What changes holds for what begins from then on, here within a
// moment and on other servers of the same store within a second: what goes on
// is not disturbed.
type ProviderService interface {
	// Providers lists those that are configured, and every kind of which none
	// is.
	Providers(ctx context.Context) ([]ProviderInfo, error)
	// ConfigureProvider sets how one is reached and used. Everything that is
	// wrong with it is in the error's Fields.
	ConfigureProvider(ctx context.Context, c ProviderConfig) (*ProviderInfo, error)
	// TestProvider runs a program at a provider that is configured like this,
	// and keeps nothing. With no Config it is one that is.
	TestProvider(ctx context.Context, c ProviderConfig) (*ProviderTest, error)
	// ActivateProvider makes one that is configured the active one.
	ActivateProvider(ctx context.Context, id string) error
	// RemoveProvider forgets one. It refuses (FailedPrecondition) while it is
	// active or has sandboxes.
	RemoveProvider(ctx context.Context, id string) error
	// Routing says where a tenant's requests go; SetRouting changes that. For ""
	// it is that of everybody who has none. An empty one is none.
	Routing(ctx context.Context, tenant string) (*Routing, error)
	SetRouting(ctx context.Context, tenant string, r Routing) error
}

// ProviderConfig says how a provider is reached and used.
type ProviderConfig struct {
	// ID is the name of its driver, or that and "@" and a name of its own.
	ID string
	// Config is an object with the fields of its schema. Left out it stays as it
	// is; so does a secret that is as ProviderInfo shows it.
	Config json.RawMessage
	// Terms stay as they are if they are left out.
	Terms *Terms
	// Activate makes it the active one. Test has a program run there first, and
	// nothing changes if that fails.
	Activate, Test bool
}

// ProviderInfo is what an operator may know of a provider.
type ProviderInfo struct {
	ID, Driver, Title, Doc string
	Tags                   []string
	Languages              []Language
	Fields                 []ConfigField
	// Configured is false of a kind of which there is none. Home is the one that
	// is always there.
	Configured, Active, Home bool
	// Config has its secrets masked.
	Config json.RawMessage
	Terms  Terms
	// Up says that it answered when it was last asked; Why not, otherwise.
	Up  bool
	Why string
	// Users are the sandboxes and programs that are there now.
	Users        int
	Capabilities Capabilities
}

// ProviderTest is how a provider ran a program.
type ProviderTest struct {
	OK      bool
	Message string
	// Code and Hint are of the error, if there was one.
	Code, Hint     string
	Latency        time.Duration
	ExitCode       int
	Stdout, Stderr string
}

// TestProgram is what TestProvider runs, and TestPassed what it prints last.
const (
	TestProgram = `import json
import math

print("2 + 2 =", 2 + 2)
print(json.dumps({"status": "ok", "items": [1, 2, 3]}))
print("sqrt(16) =", math.sqrt(16))
print("TEST_PASSED")
`
	TestPassed = "TEST_PASSED"
)
