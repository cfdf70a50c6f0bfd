package egress

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

// What tells what kinds of things a sandbox asked for.
type What string

// The kinds of events.
const (
	Lookup  What = "lookup"  // a name was asked for
	Connect What = "connect" // a connection was asked for
	Request What = "request" // an HTTP request was made on an inspected connection
	Drop    What = "drop"    // a packet was neither
)

// Event is something that a sandbox asked of the network, and what became of
// it.
type Event struct {
	At      time.Time
	What    What
	Host    string // the name that was asked for, if one was
	Addr    string // the address that was connected to, or asked for
	Port    int
	Method  string // of a request
	Path    string // of a request, without its query
	Allowed bool
	Rule    int      // which rule decided; -1 is none
	Why     string   // why not, in a few words
	Secrets []string // names of those whose values were put into it
	// Missed is how many events were too many to be told since the last.
	Missed int64
}

// Secret is a value that is put into requests in the place of a placeholder.
type Secret struct {
	Name        string
	Placeholder string
	// Value returns what it is now.
	Value func(ctx context.Context) ([]byte, error)
	// Hosts are those that may get the value, as in brig.EgressRule.Host.
	Hosts     []string
	Places    []brig.SecretPlace
	Exclusive bool
	Plain     bool // it may go there in clear HTTP
}
