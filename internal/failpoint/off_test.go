//go:build !failpoints

package failpoint_test

import (
	"testing"

	"github.com/brig-run/brig/internal/failpoint"
)

// Without the tag there is nothing, whatever the environment says.
func TestWithoutTag(t *testing.T) {
	t.Setenv("BRIG_FAILPOINTS", "a=error")
	if failpoint.Enabled || failpoint.Fail("a") != nil || failpoint.Environment() != nil {
		t.Error("a binary for production has failpoints")
	}
	if n := testing.AllocsPerRun(100, func() { failpoint.Hit("a") }); n != 0 {
		t.Errorf("a hit allocates %v times", n)
	}
}
