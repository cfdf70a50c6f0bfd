package engine

import "time"

// demand remembers how many machines were asked for in short spans of time.
// What came in one span may come again, and then there is no time to refill.
type demand struct {
	spans [demandSpans]int
	last  int64 // the number of the newest span
}

const (
	// demandSpan is about as long as it takes to refill a few.
	demandSpan = 2 * time.Second
	// demandSpans is how many are remembered: ten minutes.
	demandSpans = int(10 * time.Minute / demandSpan)
)

// move makes the span of now the newest, and empties those in between.
func (d *demand) move(now time.Time) {
	n := now.UnixNano() / int64(demandSpan)
	for i := max(d.last+1, n-int64(demandSpans)+1); i <= n; i++ {
		d.spans[i%int64(demandSpans)] = 0
	}
	d.last = max(d.last, n)
}

// count notes that one was asked for.
func (d *demand) count(now time.Time) {
	d.move(now)
	d.spans[d.last%int64(demandSpans)]++
}

// peak is the most that was asked for in any one span that is remembered.
func (d *demand) peak(now time.Time) int {
	d.move(now)
	most := 0
	for _, n := range d.spans {
		most = max(most, n)
	}
	return most
}
