package brig

import "slices"

// State is the state of a sandbox in its life cycle.
type State string

// The states of a sandbox.
const (
	// Creating means that the sandbox is recorded, but its instance may not run
	// yet.
	Creating State = "creating"
	// Running means that its instance runs.
	Running State = "running"
	// Paused means that its instance is saved on disk, and that its next use
	// restores it.
	Paused State = "paused"
	// Stopping means that its instance is being ended.
	Stopping State = "stopping"
	// Ended means that its instance no longer exists. Its logs and exit are
	// kept.
	Ended State = "stopped"
)

// States lists every state, for exhaustive tests and for the APIs.
var States = []State{Creating, Running, Paused, Stopping, Ended}

// next is the only list of legal transitions.
var next = map[State][]State{
	Creating: {Running, Paused, Stopping},
	Running:  {Paused, Stopping, Ended},
	Paused:   {Running, Ended},
	Stopping: {Ended},
	Ended:    nil,
}

// To returns FailedPrecondition unless s may change to t. A change to the same
// state is always allowed.
func (s State) To(t State) error {
	if s == t || slices.Contains(next[s], t) {
		return nil
	}
	return Errorf(FailedPrecondition, "a sandbox cannot change from %s to %s", s, t)
}

// Live reports whether a sandbox in state s may have an instance.
func (s State) Live() bool { return s == Creating || s == Running || s == Stopping }

// Lasts reports whether a sandbox in state s has not ended: it has an instance, or
// may have one again.
func (s State) Lasts() bool { return s.Live() || s == Paused }
