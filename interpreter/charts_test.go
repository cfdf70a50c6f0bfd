package interpreter_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestChartNumbersAreRounded verifies that numbers in charts are rounded as in E2B's library, to
// max(1, 8 - exponent) significant digits.
func TestChartNumbersAreRounded(t *testing.T) {
	const script = `
import python_charts
for v in [0, 1.23456789123, 123456789.123, 1e12 + 5, 0.00012345678912, -5.5, 98765.4321, float("nan"), float("inf")]:
    print(repr(python_charts.number(v)))
`
	cmd := exec.Command("/usr/bin/python3", "-c", script)
	cmd.Dir = "driver"
	cmd.Env = append(cmd.Environ(), "PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := "0.0 1.2345679 100000000.0 1000000000000.0 0.00012345678912 -5.5 98770.0 nan inf"
	if got := strings.Join(strings.Fields(string(out)), " "); got != want {
		t.Errorf("numbers are\n%s, want\n%s", got, want)
	}
}
