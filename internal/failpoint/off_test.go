//go:build !failpoints

package failpoint_test

import (
	"testing"

	"github.com/brig-run/brig/internal/failpoint"
)

// TestEnvironmentIsIgnoredWithoutTag checks that the package ignores the environment if it is built
// without the tag.
func TestEnvironmentIsIgnoredWithoutTag(t *testing.T) {
	t.Setenv("BRIG_FAILPOINTS", "a=error")
	if failpoint.Enabled || failpoint.Fail("a") != nil || failpoint.Environment() != nil {
		t.Error("a binary for production has failpoints")
	}
	if n := testing.AllocsPerRun(100, func() { failpoint.Hit("a") }); n != 0 {
		t.Errorf("a hit allocates %v times", n)
	}
}
