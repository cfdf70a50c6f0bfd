// Package race sets up the race detector in Brig's programs.
package race

// Log is the prefix of the report files of shims, which have no environment.
const Log = "/tmp/brig-race-report"

// Plant is a file. Every program that finds it makes a data race, for the test
// that shows that a race is reported.
const Plant = "/tmp/brig-race-plant"

// Options are options of the detector: a program does not sleep when it ends.
const Options = "atexit_sleep_ms=0"
