//go:build !race

package race

// Halt does nothing without the race detector.
func Halt(bool) {}

// Watch does nothing without the race detector.
func Watch() {}
