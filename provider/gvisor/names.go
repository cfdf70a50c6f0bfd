package gvisor

import (
	"os"
	"runtime"
	"runtime/debug"
)

// Values of argv[0] for a shim and a sentry.
const (
	shimName   = "brig-shim"
	sentryName = "runsc-sandbox"
)

// Shim is the main function of a shim. It never returns.
func Shim() {
	delayGC()
	os.Exit(shimMain(os.Args[1:]))
}

// firstGC is the GC percentage that applies until the first garbage collection,
// so that no collection runs while a process starts.
const firstGC = 800

// delayGC delays the first garbage collection. Afterwards the usual setting
// applies.
func delayGC() {
	usual := debug.SetGCPercent(firstGC)
	runtime.SetFinalizer(new([16]byte), func(*[16]byte) { debug.SetGCPercent(usual) })
}
