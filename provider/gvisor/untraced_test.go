//go:build !shim

package gvisor

import (
	"sync"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/seccheck"
)

// TestSkipTracePoints verifies that gVisor does not register trace points
// after skipTracePoints.
func TestSkipTracePoints(t *testing.T) {
	skipTracePoints()
	seccheck.Initialize()
	if n := len(seccheck.Points); n > 0 {
		t.Errorf("%d points were described all the same", n)
	}
	seccheckOnce = sync.Once{}
	seccheck.Initialize()
	if len(seccheck.Points) == 0 {
		t.Error("no points were described when they should be: the test says nothing")
	}
}
