// Package race sets up the race detector in Brig's programs.
package race

import "time"

// Log is the prefix of the report files of shims, which run without an environment.
const Log = "/tmp/brig-race-report"

// Plant is the path of a file for the test of race reporting. Every program that finds the file
// causes a data race.
const Plant = "/tmp/brig-race-plant"

// Options holds the options of the race detector. They disable the sleep at exit.
const Options = "atexit_sleep_ms=0"

// ScaleTimeout returns the time limit of a test for an operation that takes at most d on a busy
// machine. Programs with the race detector are several times slower.
func ScaleTimeout(d time.Duration) time.Duration {
	if Enabled {
		return 3 * d
	}
	return d
}
