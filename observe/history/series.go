package history

import "time"

// series is a sequence of points that becomes coarser when it is full.
type series[T any] struct {
	points []T
	// stride is how many samples become one point, less 1. pending is the number of samples in the
	// last point while it is incomplete.
	stride, pending int
	// combine adds a later point to p, which has n times its weight.
	combine func(p *T, later T, n int)
}

// add adds a sample, and returns by how many points the series grew, which may be negative.
func (s *series[T]) add(p T) (grown int) {
	if s.pending > 0 {
		s.combine(&s.points[len(s.points)-1], p, s.pending)
		if s.pending++; s.pending > s.stride {
			s.pending = 0
		}
		return 0
	}
	if len(s.points) >= maxPoints {
		grown = -s.thin()
	}
	s.points = append(s.points, p)
	if s.stride > 0 {
		s.pending = 1
	}
	return grown + 1
}

// thin combines each pair of points, and returns the number of points that are gone.
func (s *series[T]) thin() int {
	before := len(s.points)
	if before < 2 {
		return 0
	}
	out := s.points[:0]
	for i := 0; i < before; i += 2 {
		p := s.points[i]
		if i+1 < before {
			s.combine(&p, s.points[i+1], 1) // both points consist of as many samples
		}
		out = append(out, p)
	}
	s.points = out
	s.stride = 2*s.stride + 1
	s.pending = 0
	return before - len(out)
}

// pageSize is the resolution of sizes.
const pageSize = 4096

// usagePoint is a Sample in 24 bytes.
type usagePoint struct {
	at                  int64 // in milliseconds
	cpu                 float32
	memory, cache, disk uint32 // in pages
}

func newUsagePoint(s Sample) usagePoint {
	return usagePoint{s.At.UnixMilli(), float32(s.CPUPercent), pages(s.Memory), pages(s.Cache), pages(s.Disk)}
}

func pages(bytes int64) uint32 { return uint32(min(max(bytes, 0)/pageSize, 1<<32-1)) }

func (p usagePoint) sample() Sample {
	return Sample{time.UnixMilli(p.at), float64(p.cpu), int64(p.memory) * pageSize, int64(p.cache) * pageSize, int64(p.disk) * pageSize}
}

// combineUsage keeps the average of the CPU usage, and of the sizes the largest.
func combineUsage(p *usagePoint, later usagePoint, n int) {
	p.at = later.at
	p.cpu += (later.cpu - p.cpu) / float32(n+1)
	p.memory, p.cache, p.disk = max(p.memory, later.memory), max(p.cache, later.cache), max(p.disk, later.disk)
}

// tallyPoint is a Tally in 24 bytes.
type tallyPoint struct {
	at            int64  // in milliseconds
	span          uint32 // in milliseconds
	concurrent    uint32
	started       uint32
	maxStartsRate float32
}

func (p tallyPoint) tally() Tally {
	t := Tally{At: time.UnixMilli(p.at), Concurrent: int(p.concurrent), MaxStartRate: float64(p.maxStartsRate)}
	if p.span > 0 {
		t.StartRate = 1000 * float64(p.started) / float64(p.span)
	}
	return t
}

// combineTally keeps the largest number of sandboxes, and the average of the start rate.
func combineTally(p *tallyPoint, later tallyPoint, _ int) {
	p.at, p.span, p.started = later.at, p.span+later.span, p.started+later.started
	p.concurrent, p.maxStartsRate = max(p.concurrent, later.concurrent), max(p.maxStartsRate, later.maxStartsRate)
}
