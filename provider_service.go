package brig

import (
	"context"
	"encoding/json"
	"time"
)

// ProviderService manages providers and routing, for operators. A change
// applies to operations that start after it: almost immediately on this server,
// and within a second on other servers with the same store. It does not affect
// running sandboxes.
type ProviderService interface {
	// Providers lists the configured providers, and every kind that has no
	// configured provider.
	Providers(ctx context.Context) ([]ProviderInfo, error)
	// ConfigureProvider sets the configuration and the terms of a provider. The
	// error's Fields lists all invalid fields.
	ConfigureProvider(ctx context.Context, c ProviderConfig) (*ProviderInfo, error)
	// TestProvider runs a program on a provider with this configuration, without
	// storing the configuration. If c.Config is nil, it tests the configured
	// provider.
	TestProvider(ctx context.Context, c ProviderConfig) (*ProviderTest, error)
	// ActivateProvider makes a configured provider the active one.
	ActivateProvider(ctx context.Context, id string) error
	// RemoveProvider removes a provider. It returns FailedPrecondition while the
	// provider is active or has sandboxes.
	RemoveProvider(ctx context.Context, id string) error
	// Routing returns a tenant's routing, and SetRouting replaces it. The tenant ""
	// stands for the default, which applies to tenants without a routing. A zero
	// Routing deletes the stored one.
	Routing(ctx context.Context, tenant string) (*Routing, error)
	SetRouting(ctx context.Context, tenant string, r Routing) error
}

// ProviderConfig is the configuration of a provider.
type ProviderConfig struct {
	// ID is the name of the provider's driver, optionally followed by "@" and a
	// suffix.
	ID string
	// Config is an object with the fields of the provider's schema. If it is nil,
	// the current configuration is kept. A secret in the masked form of
	// ProviderInfo keeps its current value.
	Config json.RawMessage
	// Terms are the new terms. If it is nil, the current terms are kept.
	Terms *Terms
	// Activate makes the provider the active one. Test runs a program on the
	// provider first; if the program fails, the call has no effect.
	Activate, Test bool
	// Rev is the revision on which the change is based; 0 skips the check.
	Rev int64
}

// ProviderInfo is an operator's view of a provider.
type ProviderInfo struct {
	ID, Driver, Title, Doc string
	Tags                   []string
	Languages              []Language
	Fields                 []ConfigField
	// Configured is false for a kind without a configured provider. Home is
	// true for the built-in provider, which always exists.
	Configured, Active, Home bool
	// Config is the configuration with masked secrets.
	Config json.RawMessage
	Terms  Terms
	// Up is true if the provider responded to the last check; otherwise Why
	// contains the error.
	Up  bool
	Why string
	// Users is the current number of sandboxes and programs on the provider.
	Users        int
	Capabilities Capabilities
	// Rev increases with every change of Config and Terms. ConfigureProvider
	// rejects a change that is based on another revision (see IsConflict).
	Rev int64
}

// ProviderTest is the result of a test program on a provider.
type ProviderTest struct {
	OK      bool
	Message string
	// Code and Hint belong to the error, if any.
	Code, Hint     string
	Latency        time.Duration
	ExitCode       int
	Stdout, Stderr string
}

// TestProgram is the program of TestProvider, and TestPassed is the last line of
// its output.
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
