// Package race sets up the race detector in the programs that start without an
// environment of their own: the agent and the shim.
package race

// Log is the prefix of the report files, in the host's folder for temporary
// files.
const Log = "brig-race-report"
