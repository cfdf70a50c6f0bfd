package gvisor

import (
	"time"

	"github.com/brig-run/brig"
)

// orderVersion is the version of order and of the handle; a shim that was
// started by an older server keeps the order that it was given.
const orderVersion = 1

// order is what a provider asks of a shim, written to the sandbox's folder.
type order struct {
	Version   int
	ID        string
	Hostname  string
	Root      Root
	Limits    brig.Limits
	Env       map[string]string
	Command   *brig.Command
	Lease     time.Time
	Ephemeral bool
	Blank     bool   `json:",omitempty"`
	Cgroup    string // empty where no cgroup can be made
	Rootless  bool
	Agent     string   // path of the agent's binary
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
