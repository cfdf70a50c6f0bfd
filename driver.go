package brig

import (
	"context"
	"log/slog"
	"strings"
)

// Driver describes a kind of provider: its name, its configuration, and how to
// open one. A new kind is a package with a Driver and a line in cmd/brig.
type Driver struct {
	// Name is the name of the kind: 1 to 63 of a-z, 0-9 and "_".
	Name string
	// Title (a few words) and Doc (a sentence) are for display.
	Title, Doc string
	// Tags are search terms, for example "self-hosted".
	Tags []string
	// Languages are the languages of the programs that a provider of this kind
	// runs.
	Languages []Language
	// Config returns a pointer to a struct with the defaults. Its fields are
	// the schema; see package schema.
	Config func() any
	// Open opens a provider with a configuration that Config returned,
	// completed and validated. A provider that implements io.Closer is closed
	// after its last use.
	Open func(ctx context.Context, env ProviderEnv, config any) (Provider, error)
}

// ProviderEnv is the environment that a server passes to each provider that it opens.
type ProviderEnv struct {
	// ID is the provider's ID; see ProviderDriver.
	ID string
	// Dir is the provider's private directory.
	Dir string
	// Agent is the path of the guest agent, a static program for the host's
	// processor architecture.
	Agent string
	Log   *slog.Logger
	// Called is called for every request to another service. It is never nil.
	Called func(Call)
	// Server is this server's name. It detects programs that another server
	// forwards back to this one.
	Server string
}

// NewDriver returns a Driver whose configuration has the type C.
func NewDriver[C any](d Driver, defaults C, open func(ctx context.Context, env ProviderEnv, config *C) (Provider, error)) Driver {
	d.Config = func() any {
		c := defaults
		return &c
	}
	d.Open = func(ctx context.Context, env ProviderEnv, config any) (Provider, error) {
		c, ok := config.(*C)
		if !ok {
			return nil, Errorf(Internal, "the configuration of %s is a %T", d.Name, config)
		}
		return open(ctx, env, c)
	}
	return d
}

// ProviderDriver returns the driver name of a provider's ID: the part before
// "@", if any, or else the whole ID. This allows several providers of a kind,
// for example "e2b" and "e2b@eu".
func ProviderDriver(id string) string {
	kind, _, _ := strings.Cut(id, "@")
	return kind
}

// ValidProviderID reports whether s is a valid provider ID.
func ValidProviderID(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789_-"
	kind, suffix, hasSuffix := strings.Cut(s, "@")
	ok := func(s string) bool { return len(s) > 0 && len(s) <= 63 && strings.Trim(s, letters) == "" }
	return ok(kind) && (!hasSuffix || ok(suffix))
}

// ConfigField is one field of a provider's configuration, for forms and for
// validation.
type ConfigField struct {
	Name string `json:"name"`
	// Type is "string", "integer", "number", "boolean" or "array" (of strings).
	Type        string   `json:"type" enum:"string,integer,number,boolean,array"`
	Label       string   `json:"label"`
	Doc         string   `json:"description,omitempty"`
	Placeholder string   `json:"placeholder,omitempty"`
	Default     any      `json:"default,omitempty"`
	Options     []string `json:"options,omitempty"`
	Min         *float64 `json:"min,omitempty"`
	Max         *float64 `json:"max,omitempty"`
	Required    bool     `json:"required,omitempty"`
	// Secret fields are stored encrypted and displayed masked.
	Secret bool `json:"secret,omitempty"`
	// FromEnvironment means that the server's environment provides the value if a configuration
	// omits this secret.
	FromEnvironment bool `json:"-"`
	// Destination fields determine the service that receives the secrets. A change
	// of such a field must include the secrets again.
	Destination bool `json:"destination,omitempty"`
	Multiline   bool `json:"multiline,omitempty"`
	// ReadOnly fields are displayed and cannot be set.
	ReadOnly bool `json:"readonly,omitempty"`
}

// FieldError is the error of one field.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// ConfigRules is implemented by configurations with rules that involve several
// fields.
type ConfigRules interface {
	// Validate returns an error for every field that violates a rule.
	Validate() []FieldError
}

// Call is one call to another service, as observed by its provider.
type Call struct {
	// Operation is the name of the operation, for example "create". Region is the
	// service's region, if any.
	Operation, Region string
	// Status is the HTTP status; 0 if there was no response.
	Status int
	// Seconds is the duration of the call.
	Seconds float64
	// Used and Limit are the state of the service's rate limit, if it reports
	// one.
	Used, Limit float64
}
