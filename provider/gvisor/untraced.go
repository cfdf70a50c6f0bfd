//go:build !shim

package gvisor

import (
	"sync"
	_ "unsafe" // for go:linkname

	_ "gvisor.dev/gvisor/pkg/sentry/seccheck"
)

// seccheckOnce is the Once with which gVisor registers its trace points.
//
//go:linkname seccheckOnce gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var seccheckOnce sync.Once

// skipTracePoints prevents a sentry from registering gVisor's trace points.
// Brig does not start trace sessions, and registering thousands of points takes
// 3 ms.
func skipTracePoints() { seccheckOnce.Do(func() {}) }
