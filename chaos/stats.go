package chaos

import (
	"math"
	"slices"
	"time"
)

// Percentile returns the p-th percentile of d, by the nearest-rank method. It
// returns 0 if d is empty.
func Percentile(d []time.Duration, p float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(d))
	return s[min(max(int(math.Ceil(p/100*float64(len(s))))-1, 0), len(s)-1)]
}

// FitLine fits a straight line to points by least squares, and returns its slope
// and its value at 0. With fewer than two distinct values of x, the line is
// flat.
func FitLine(x, y []float64) (slope, at0 float64) {
	n := float64(len(x))
	if n == 0 {
		return 0, 0
	}
	var mx, my, sxy, sxx float64
	for i := range x {
		mx, my = mx+x[i]/n, my+y[i]/n
	}
	for i := range x {
		sxy += (x[i] - mx) * (y[i] - my)
		sxx += (x[i] - mx) * (x[i] - mx)
	}
	if sxx == 0 {
		return 0, my
	}
	slope = sxy / sxx
	return slope, my - slope*mx
}

// driftPercent returns the rise of the fitted line from the first point to the last,
// in percent.
func driftPercent(x, y []float64) float64 {
	slope, at0 := FitLine(x, y)
	if len(x) == 0 || at0+slope*x[0] == 0 {
		return 0
	}
	first, last := at0+slope*x[0], at0+slope*x[len(x)-1]
	return 100 * (last/first - 1)
}
