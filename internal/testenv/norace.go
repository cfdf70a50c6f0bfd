//go:build !race

package testenv

// Raced reports whether this test binary was built with the race detector. In the
// part race the programs are too; the detector multiplies their memory use.
const Raced = false
