package gvisor

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/brig-run/brig"
)

// orderVersion is the version of the order and handle formats. A shim that was
// started by an older server keeps its order.
const orderVersion = 1

// order is a provider's order to a shim, stored in the sandbox's directory.
type order struct {
	Version  int
	ID       string
	Hostname string
	Image    string `json:",omitempty"` // the image's digest
	Root     Root
	Limits   brig.Limits
	Env      map[string]string
	Command  *brig.Command
	// If Private is set, the shim reads the command's environment from its
	// standard input instead. The environment may contain secrets, and the
	// order is stored in a file.
	Private   bool `json:",omitempty"`
	Lease     time.Time
	Ephemeral bool
	Blank     bool     `json:",omitempty"`
	Held      bool     `json:",omitempty"`
	Build     bool     `json:",omitempty"` // see brig.Spec.BuildRights
	Volumes   []volume `json:",omitempty"`
	Cgroup    string   // empty if no cgroup can be created
	Share     string   `json:",omitempty"` // see brig.Spec.Share
	Rootless  bool
	Agent     string   // path of the agent's binary
	AgentAt   string   `json:",omitempty"` // the agent's path in the guest; empty if the sentry receives an open descriptor
	Carried   bool     `json:",omitempty"` // the agent holds the streams of processes, so that they can be saved
	From      string   `json:",omitempty"` // directory of the save to restore
	FilesFrom string   `json:",omitempty"` // directory of the save without memory whose files the sandbox boots with
	Engine    string   `json:",omitempty"` // path of the sentry's binary
	Shim      string   `json:",omitempty"` // path of the shim's binary; earlier versions did not record it
	Alone     bool     `json:",omitempty"` // the sentry works without a gofer
	Counted   bool     `json:",omitempty"` // the shim counts the refusals of the sentry
	Disabled  []string // protections that a test disables to verify that they matter
}

// ending is the exit of a sandbox as its shim records it.
type ending struct {
	brig.Exit
	Refused *brig.Refusals `json:",omitempty"` // nil if refusals were not counted
}

// Root is the location of an image's files: a directory, and read-only bind
// mounts on top of it.
type Root struct {
	Dir   string
	Binds []Bind
}

// Bind makes Source visible at Target, read-only.
type Bind struct{ Source, Target string }

// volume is a mount of a volume, which other sandboxes may write at the same time.
type volume struct {
	Image    string // path of the image of its file system; see package diskimage
	Target   string
	ReadOnly bool `json:",omitempty"`
}

// hide removes the command's environment from an order, and returns it encoded
// for reveal.
func (o *order) hide() ([]byte, error) {
	if o.Command == nil || len(o.Command.Env) == 0 {
		return nil, nil
	}
	env := map[string][]byte{} // values may be arbitrary bytes
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
