package engine

import "time"

// demand records how many sandboxes were requested in short spans of time. The pool is sized for
// the peak of one span, because it cannot be refilled within a span.
type demand struct {
	spans [demandSpans]int
	last  int64 // the number of the newest span
}

const (
	// demandSpan is about as long as the refill of a few sandboxes takes.
	demandSpan = 2 * time.Second
	// demandSpans is the number of spans that are kept: ten minutes.
	demandSpans = int(10 * time.Minute / demandSpan)
)

// advance makes the span of now the newest, and clears the spans in between.
func (d *demand) advance(now time.Time) {
	n := now.UnixNano() / int64(demandSpan)
	for i := max(d.last+1, n-int64(demandSpans)+1); i <= n; i++ {
		d.spans[i%int64(demandSpans)] = 0
	}
	d.last = max(d.last, n)
}

// count records one request.
func (d *demand) count(now time.Time) {
	d.advance(now)
	d.spans[d.last%int64(demandSpans)]++
}

// peak returns the largest number of requests in any one recorded span.
func (d *demand) peak(now time.Time) int {
	d.advance(now)
	highest := 0
	for _, n := range d.spans {
		highest = max(highest, n)
	}
	return highest
}
