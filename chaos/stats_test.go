package chaos

import (
	"math"
	"testing"
	"time"
)

func TestPercentileUsesNearestRank(t *testing.T) {
	var d []time.Duration
	for i := range 100 {
		d = append(d, time.Duration(100-i))
	}
	for p, want := range map[float64]time.Duration{0: 1, 50: 50, 99: 99, 100: 100} {
		if got := Percentile(d, p); got != want {
			t.Errorf("p%v of 1 to 100 is %d, want %d", p, got, want)
		}
	}
	if Percentile(nil, 50) != 0 || Percentile(d[:1], 99) != 100 {
		t.Error("of none or of one")
	}
}

func TestLineFitsPoints(t *testing.T) {
	slope, at0 := FitLine([]float64{1, 2, 3, 4}, []float64{3, 5, 7, 9})
	if math.Abs(slope-2) > 1e-9 || math.Abs(at0-1) > 1e-9 {
		t.Errorf("2x+1 is %vx+%v", slope, at0)
	}
	if slope, at0 := FitLine([]float64{5, 5}, []float64{1, 3}); slope != 0 || at0 != 2 {
		t.Errorf("of one x: %v, %v", slope, at0)
	}
	if d := driftPercent([]float64{0, 10}, []float64{2, 3}); math.Abs(d-50) > 1e-9 {
		t.Errorf("from 2 to 3 is %v%%", d)
	}
	if driftPercent(nil, nil) != 0 {
		t.Error("of nothing")
	}
}

// TestLedgerCountsMissingEvents checks the number of missing events, and that a kill explains the
// errors that follow it.
func TestLedgerCountsMissingEvents(t *testing.T) {
	l := newLedger()
	for range 2 {
		l.recordSuccess(opForTest("a"), "box", func(*Counts) {})
	}
	l.recordSuccess(opForTest("b"), "box", func(*Counts) {})
	if n := l.countMissing(eventsForTest("a", "a", "b")); n != 0 {
		t.Errorf("%d are missing of all", n)
	}
	if n := l.countMissing(eventsForTest("a")); n != 2 {
		t.Errorf("%d are missing, want 2", n)
	}
	l.recordError("x", time.Now(), errForTest)
	l.markKilled("box")
	l.recordError("y", time.Now(), errForTest)
	if len(l.unexplained) != 1 {
		t.Errorf("unexplained: %v", l.unexplained)
	}
}
