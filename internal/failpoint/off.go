//go:build !failpoints

package failpoint

// Enabled reports whether this binary has failpoints.
const Enabled = false

// Hit marks a point at which the process may crash.
func Hit(string) {}

// Fail marks a point at which the current operation may fail.
func Fail(string) error { return nil }

// Environment returns the variables that pass the failpoints to a child
// process.
func Environment() []string { return nil }
