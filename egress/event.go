package egress

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

// Kind is the kind of access that a sandbox requested.
type Kind string

// The kinds of events.
const (
	Lookup  Kind = "lookup"  // a name was looked up
	Connect Kind = "connect" // a connection was requested
	Request Kind = "request" // an HTTP request was made on an inspected connection
	Drop    Kind = "drop"    // a packet of any other kind was dropped
)

// Event is a network access that a sandbox requested, with its outcome.
type Event struct {
	At      time.Time
	Kind    Kind
	Host    string // the requested name, if any
	Addr    string // the address that was dialed or requested
	Port    int
	Method  string // of a request
	Path    string // of a request, without its query
	Allowed bool
	Rule    int      // index of the rule that decided, or -1
	Why     string   // a short reason for the refusal
	Secrets []string // names of the secrets whose values were inserted
	// Suppressed is the number of events that were not reported since the last
	// reported one, because there were too many.
	Suppressed int64
}

// Secret is a value that replaces a placeholder in requests.
type Secret struct {
	Name        string
	Placeholder string
	// Value returns the current value.
	Value func(ctx context.Context) ([]byte, error)
	// Hosts are the hosts that may receive the value, as in brig.EgressRule.Host.
	Hosts     []string
	Places    []brig.SecretPlace
	Exclusive bool
	Allow     []string // exceptions to Exclusive, as in brig.Secret
	Plain     bool     // the value may be sent to the hosts over plain HTTP
}
