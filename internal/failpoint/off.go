//go:build !failpoints

package failpoint

// Enabled says whether this binary has failpoints.
const Enabled = false

// Hit is a moment at which the process may die.
func Hit(string) {}

// Fail is a moment at which what is being done may fail.
func Fail(string) error { return nil }

// Environment is what a child process needs to have the same failpoints.
func Environment() []string { return nil }
