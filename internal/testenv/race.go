//go:build race

package testenv

// RaceEnabled reports whether this test binary was built with the race
// detector. In the part "race", the programs under test are built with it as
// well, which multiplies their memory usage.
const RaceEnabled = true
