package brig

import "slices"

// State is the state of a sandbox in its life cycle.
type State string

// The states of a sandbox.
const (
	// Creating means that the sandbox is recorded, but its instance may not run
	// yet.
	Creating State = "creating"
	// Running means that the instance runs.
	Running State = "running"
	// Paused means that the instance is saved on disk. The next use of the sandbox
	// restores it.
	Paused State = "paused"
	// Stopping means that the instance is being ended.
	Stopping State = "stopping"
	// Ended means that the instance no longer exists. The sandbox's logs and exit
	// status are kept.
	Ended State = "stopped"
)

// States lists every state, for exhaustive tests and for the APIs.
var States = []State{Creating, Running, Paused, Stopping, Ended}

// transitions lists the legal transitions of each state.
var transitions = map[State][]State{
	Creating: {Running, Paused, Stopping},
	Running:  {Paused, Stopping, Ended},
	Paused:   {Running, Ended},
	Stopping: {Ended},
	Ended:    nil,
}

// CheckTransition returns FailedPrecondition unless s may change to t. A change to the same
// state is always allowed.
func (s State) CheckTransition(t State) error {
	if s == t || slices.Contains(transitions[s], t) {
		return nil
	}
	return Errorf(FailedPrecondition, "a sandbox cannot change from %s to %s", s, t)
}

// IsLive reports whether a sandbox in state s may have an instance.
func (s State) IsLive() bool { return s == Creating || s == Running || s == Stopping }

// IsActive reports whether a sandbox in state s has an instance or may get one again.
func (s State) IsActive() bool { return s.IsLive() || s == Paused }
