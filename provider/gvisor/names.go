package gvisor

import (
	"os"
	"runtime"
	"runtime/debug"
)

// The argv[0] of a shim and of a sentry.
const (
	shimName   = "brig-shim"
	sentryName = "runsc-sandbox"
)

// Shim is the main of a shim. It never returns.
func Shim() {
	delayGC()
	os.Exit(shimMain(os.Args[1:]))
}

// firstGC is how much more than usual a process may allocate until memory is
// first collected, in percent: with it no collection falls into its start.
const firstGC = 800

// delayGC puts the first garbage collection off. After it all is as usual.
func delayGC() {
	usual := debug.SetGCPercent(firstGC)
	runtime.SetFinalizer(new([16]byte), func(*[16]byte) { debug.SetGCPercent(usual) })
}
