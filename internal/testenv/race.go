//go:build race

package testenv

// Raced says whether the tests, and the programs of the part race with them, have
// the race detector, which takes several times the memory.
const Raced = true
