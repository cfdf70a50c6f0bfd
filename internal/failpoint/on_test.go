//go:build failpoints

package failpoint_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/brig-run/brig/internal/failpoint"
)

// TestRulesSelectWhenToAct checks that a point performs the configured action at the
// configured time.
func TestRulesSelectWhenToAct(t *testing.T) {
	t.Setenv("BRIG_FAILPOINTS", "a=error; b=error(2);c=sleep(20ms);d=nonsense")
	if failpoint.Fail("a") == nil || failpoint.Fail("a") == nil || failpoint.Fail("none") != nil {
		t.Error("error: not at the point, or elsewhere")
	}
	if failpoint.Fail("b") != nil || failpoint.Fail("b") == nil || failpoint.Fail("b") != nil {
		t.Error("error(2): not the second time, or another")
	}
	if start := time.Now(); failpoint.Fail("c") != nil || time.Since(start) < 20*time.Millisecond {
		t.Error("sleep: did not sleep")
	}
	if failpoint.Fail("d") == nil {
		t.Error("an invalid rule was not reported")
	}
	file, marks := filepath.Join(t.TempDir(), "rules"), t.TempDir()
	t.Setenv("BRIG_FAILPOINTS", "@"+file)
	t.Setenv("BRIG_FAILPOINTS_MARKS", marks)
	if failpoint.Fail("e") != nil {
		t.Error("no file: it acts")
	}
	if err := os.WriteFile(file, []byte("e=error"), 0o600); err != nil {
		t.Fatal(err)
	}
	if failpoint.Fail("e") == nil || failpoint.Fail("e") != nil {
		t.Error("marks: not the first time, or another")
	}
	if _, err := os.Stat(filepath.Join(marks, "e")); err != nil {
		t.Error(err)
	}
	if len(failpoint.Environment()) != 2 {
		t.Errorf("a child gets %v", failpoint.Environment())
	}
}
