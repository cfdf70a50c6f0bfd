package gvisor

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/brig-run/brig"
)

// orderVersion is the version of order and of the handle; a shim that was
// started by an older server keeps the order that it was given.
const orderVersion = 1

// order is what a provider asks of a shim, written to the sandbox's folder.
type order struct {
	Version  int
	ID       string
	Hostname string
	Root     Root
	Limits   brig.Limits
	Env      map[string]string
	Command  *brig.Command
	// Private says that the command's environment is not here but comes on
	// the shim's standard input: it may have secrets, and this is a file.
	Private   bool `json:",omitempty"`
	Lease     time.Time
	Ephemeral bool
	Blank     bool   `json:",omitempty"`
	Held      bool   `json:",omitempty"`
	Cgroup    string // empty where no cgroup can be made
	Rootless  bool
	Agent     string   // path of the agent's binary
	Engine    string   `json:",omitempty"` // path of the sentry's binary
	Alone     bool     `json:",omitempty"` // the sentry works without a gofer
	Disabled  []string // protections that a test's control switches off
}

// ending is how a sandbox ended, as its shim writes it down.
type ending struct {
	Code      int
	Reason    brig.ExitReason
	OOMKilled bool
	At        time.Time
}

func (e ending) exit() *brig.Exit {
	return &brig.Exit{Code: e.Code, Reason: e.Reason, OOMKilled: e.OOMKilled, At: e.At}
}

// Root is where an image's files are: a directory, and read-only binds of
// others on top of it.
type Root struct {
	Dir   string
	Binds []Bind
}

// Bind makes Source visible at Target, read-only.
type Bind struct{ Source, Target string }

// hide takes the environment of the command out of an order, and returns what
// reveal puts back.
func (o *order) hide() ([]byte, error) {
	if o.Command == nil || len(o.Command.Env) == 0 {
		return nil, nil
	}
	env := map[string][]byte{} // values need not be text
	for k, v := range o.Command.Env {
		env[k] = []byte(v)
	}
	b, err := json.Marshal(env)
	if err != nil {
		return nil, fmt.Errorf("encode environment: %w", err)
	}
	c := *o.Command
	c.Env = nil
	o.Command, o.Private = &c, true
	return b, nil
}

// reveal undoes hide.
func (o *order) reveal(r io.Reader) error {
	if !o.Private {
		return nil
	}
	var env map[string][]byte
	if err := json.NewDecoder(r).Decode(&env); err != nil {
		return fmt.Errorf("read the command's environment: %w", err)
	}
	o.Command.Env = map[string]string{}
	for k, v := range env {
		o.Command.Env[k] = string(v)
	}
	return nil
}
