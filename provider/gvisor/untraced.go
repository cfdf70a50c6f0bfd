//go:build !shim

package gvisor

import (
	"sync"
	_ "unsafe" // for go:linkname

	_ "gvisor.dev/gvisor/pkg/sentry/seccheck"
)

// gVisor describes in it what its trace sessions can be about, once.
//
//go:linkname seccheckOnce gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var seccheckOnce sync.Once

// untraced has a sentry do without: nobody here begins such a session, and
// thousands of descriptions take 3 ms.
func untraced() { seccheckOnce.Do(func() {}) }
