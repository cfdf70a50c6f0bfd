// Package race sets up the race detector in Brig's programs.
package race

// Log is the prefix of the shims' report files, in the host's folder for
// temporary files.
const Log = "brig-race-report"

// Plant is a file in the folder for temporary files. Every program that finds it
// there makes a data race, for the test that shows that a race is reported.
const Plant = "brig-race-plant"
