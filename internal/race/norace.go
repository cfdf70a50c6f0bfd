//go:build !race

package race

// Log begins the names of the files with reports.
const Log = "brig-race-report"

// Halt does nothing without the race detector.
func Halt(bool) {}
