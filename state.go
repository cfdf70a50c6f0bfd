package brig

import "slices"

// State is where a sandbox is in its life.
type State string

// The states of a sandbox.
const (
	// Creating: recorded, its machine not yet known to run.
	Creating State = "creating"
	// Running: its machine runs.
	Running State = "running"
	// Stopping: its machine is being ended.
	Stopping State = "stopping"
	// Ended: its machine is gone; its logs and exit are kept.
	Ended State = "stopped"
)

// States lists every state, for exhaustive tests and for doors.
var States = []State{Creating, Running, Stopping, Ended}

// next is the only list of legal transitions.
var next = map[State][]State{
	Creating: {Running, Stopping},
	Running:  {Stopping, Ended},
	Stopping: {Ended},
	Ended:    nil,
}

// To reports an error of kind FailedPrecondition unless s may become t. A
// state may always become itself.
func (s State) To(t State) error {
	if s == t || slices.Contains(next[s], t) {
		return nil
	}
	return Errorf(FailedPrecondition, "a sandbox that is %s cannot become %s", s, t)
}

// Live reports whether a sandbox in state s may have a machine.
func (s State) Live() bool { return s == Creating || s == Running || s == Stopping }
