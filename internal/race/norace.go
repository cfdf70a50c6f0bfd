//go:build !race

package race

// Enabled reports whether this build has the race detector.
const Enabled = false

// Halt is a no-op, because this build has no race detector.
func Halt(bool) {}

// Watch is a no-op, because this build has no race detector.
func Watch() {}
