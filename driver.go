package brig

import (
	"context"
	"log/slog"
	"strings"
)

// Driver is how a kind of provider presents itself: what it is called, how it
// is configured, and how one is opened. A new kind is a package with one of
// these and a line in cmd/brig.
type Driver struct {
	// Name is the kind's: 1 to 63 of a-z, 0-9 and "_".
	Name string
	// Title and Doc are for people: a few words, and a sentence.
	Title, Doc string
	// Tags are what one chooses by, for example "self-hosted".
	Tags []string
	// Languages are those of its programs.
	Languages []Language
	// Config returns a pointer to a struct with the defaults. Its fields are
	// the schema; package schema says how.
	Config func() any
	// Open opens a provider with a configuration that Config returned, filled
	// in and checked. One that has an io.Closer's Close is closed when nobody
	// uses it any more.
	Open func(ctx context.Context, site Site, config any) (Provider, error)
}

// Site is what a server gives to each provider that it opens.
type Site struct {
	// ID is the provider's; see ProviderDriver.
	ID string
	// Dir is a folder of its own.
	Dir string
	// Agent is the file of the guest agent, a static program for this
	// machine's kind of processor.
	Agent string
	Log   *slog.Logger
	// Called is told of every call to another service; never nil.
	Called func(Call)
}

// NewDriver makes a Driver of one whose configuration is of type C.
func NewDriver[C any](d Driver, defaults C, open func(ctx context.Context, site Site, config *C) (Provider, error)) Driver {
	d.Config = func() any {
		c := defaults
		return &c
	}
	d.Open = func(ctx context.Context, site Site, config any) (Provider, error) {
		c, ok := config.(*C)
		if !ok {
			return nil, Errorf(Internal, "the configuration of %s is a %T", d.Name, config)
		}
		return open(ctx, site, c)
	}
	return d
}

// ProviderDriver is the kind of the provider of an id: all of it, or what is
// before "@", so that there can be several of a kind: "e2b", "e2b@eu".
func ProviderDriver(id string) string {
	kind, _, _ := strings.Cut(id, "@")
	return kind
}

// ValidProviderID reports whether s can be a provider's id.
func ValidProviderID(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789_-"
	kind, own, several := strings.Cut(s, "@")
	ok := func(s string) bool { return len(s) > 0 && len(s) <= 63 && strings.Trim(s, letters) == "" }
	return ok(kind) && (!several || ok(own))
}

// ConfigField is one field of a provider's configuration, for forms and for
// whoever checks one.
type ConfigField struct {
	Name string `json:"name"`
	// Type is "string", "integer", "number", "boolean" or "array" (of strings).
	Type        string   `json:"type"`
	Label       string   `json:"label"`
	Doc         string   `json:"description,omitempty"`
	Placeholder string   `json:"placeholder,omitempty"`
	Default     any      `json:"default,omitempty"`
	Options     []string `json:"options,omitempty"`
	Min         *float64 `json:"min,omitempty"`
	Max         *float64 `json:"max,omitempty"`
	Required    bool     `json:"required,omitempty"`
	// Secret fields are kept encrypted and shown as their last characters.
	Secret    bool `json:"secret,omitempty"`
	Multiline bool `json:"multiline,omitempty"`
	// ReadOnly fields are told and not to be set.
	ReadOnly bool `json:"readonly,omitempty"`
}

// FieldError is what is wrong with one field.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// ConfigRules is a configuration that has rules of its own, beyond those of
// its fields.
type ConfigRules interface {
	// Wrong names every field that breaks one.
	Wrong() []FieldError
}

// Call is one call to another service, as its provider saw it.
type Call struct {
	// Operation is for example "create"; Region is where, empty if it has none.
	Operation, Region string
	// Status is the HTTP status, 0 when there was no answer.
	Status int
	// Seconds is how long it took.
	Seconds float64
	// Used and Limit are of the service's rate limit, if it told them.
	Used, Limit float64
}
