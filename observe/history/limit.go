package history

import (
	"cmp"
	"slices"
	"time"
)

// limit removes the series that are too old, and then points until there are at most maxTotal.
func (r *Recorder) limit(now time.Time) {
	var gone []string
	for id, s := range r.sandboxes {
		switch {
		case s.gone.IsZero():
		case now.Sub(s.gone) > keepGone:
			r.remove(id)
		default:
			gone = append(gone, id)
		}
	}
	for name, t := range r.tenants {
		if p := t.tallies.points; t.idle && (len(p) == 0 || now.Sub(p[len(p)-1].tally().At) > keepGone) {
			r.total -= len(p)
			delete(r.tenants, name)
		}
	}
	if len(gone) <= maxGone && r.total <= maxTotal {
		return
	}
	slices.SortFunc(gone, func(a, b string) int {
		return cmp.Or(r.sandboxes[a].gone.Compare(r.sandboxes[b].gone), cmp.Compare(a, b))
	})
	for len(gone) > maxGone || len(gone) > 0 && r.total > maxTotal {
		r.remove(gone[0])
		gone = gone[1:]
	}
	for r.total > maxTotal && r.coarsen() {
	}
}

func (r *Recorder) remove(id string) {
	r.total -= len(r.sandboxes[id].usage.points)
	delete(r.sandboxes, id)
}

// coarsen halves each series with more than one point, and reports whether there was one.
func (r *Recorder) coarsen() (coarser bool) {
	for _, s := range r.sandboxes {
		n := s.usage.thin()
		r.total, coarser = r.total-n, coarser || n > 0
	}
	for _, t := range r.tenants {
		n := t.tallies.thin()
		r.total, coarser = r.total-n, coarser || n > 0
	}
	return coarser
}
