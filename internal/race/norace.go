//go:build !race

package race

// Enabled reports whether this build has the race detector.
const Enabled = false

// ExitOnRace is a no-op, because this build has no race detector.
func ExitOnRace(bool) {}

// StartRaceOnFile is a no-op, because this build has no race detector.
func StartRaceOnFile() {}
