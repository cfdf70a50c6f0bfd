package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
)

// Memory reports the server's memory limit and its usage.
type Memory interface {
	Limit() int64
	Used() int64
}

// Fractions of the memory limit above which the server rejects new work, and
// below which it accepts new work again.
const (
	shedAbove    = 0.85
	shedBelow    = 0.75
	shedInterval = 50 * time.Millisecond
	// collectEvery is the minimum interval between garbage collections, which
	// precede the rejection of work.
	collectEvery = 2 * time.Second
)

// Watch makes f reject new work while the server uses nearly all of its memory,
// until ctx ends. Otherwise the kernel would kill the server and all sandboxes
// that run in it.
func (f *Limiter) Watch(ctx context.Context, m Memory, log *slog.Logger) {
	tick := time.NewTicker(shedInterval)
	defer tick.Stop()
	var collected time.Time
	f.memory.Store(m.Limit())
	look := func() float64 {
		used := m.Used()
		f.used.Store(used)
		f.since.Store(0)
		return float64(used) / float64(m.Limit())
	}
	look()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		part := look()
		switch shedding := f.shedding.Load(); {
		case !shedding && part > shedAbove:
			f.shedding.Store(true) // before the collection, which takes a moment
			if time.Since(collected) > collectEvery {
				debug.FreeOSMemory()
				collected = time.Now()
				if part = look(); part <= shedBelow {
					f.shedding.Store(false)
					continue
				}
			}
			log.Warn("rejecting new work: the server uses nearly all of its memory", "used", m.Used(), "limit", m.Limit())
		case shedding && part > shedBelow && time.Since(collected) > collectEvery:
			debug.FreeOSMemory()
			collected = time.Now()
		case shedding && part <= shedBelow:
			f.shedding.Store(false)
			log.Info("accepting new work again", "used", m.Used(), "limit", m.Limit())
		}
	}
}

// isShort reports whether memory is insufficient for n more bytes of a body. It
// also counts the bytes reserved since the last measurement, because bodies can
// exhaust the memory before the next measurement. A growing buffer needs twice
// its size.
func (f *Limiter) isShort(n int64) bool {
	if f.shedding.Load() {
		return true
	}
	limit := f.memory.Load()
	if limit == 0 {
		return false
	}
	if f.used.Load()+f.since.Add(2*n) <= int64(shedAbove*float64(limit)) {
		return false
	}
	f.shedding.Store(true) // until Watch measures a lower usage
	return true
}

// rejectOverloaded counts a rejected request and returns its error.
func (f *Limiter) rejectOverloaded() error {
	f.shedCount.Add(1)
	return brig.Errorf(brig.Unavailable, "the server uses nearly all of its memory, and rejects new work").WithHint("try again in a moment")
}

// isWork reports whether a request may increase the server's load. Requests
// that only read, stop or remove are always accepted.
func isWork(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodOptions:
		return false
	}
	for _, end := range []string{"/kill", "/stop", "/signal", "/interrupt", "/logout"} {
		if strings.HasSuffix(r.URL.Path, end) {
			return false
		}
	}
	return true
}

// Collectors returns the metrics of f.
func (f *Limiter) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "brig_http_body_bytes", Help: "Bytes of requests' bodies that are held now."},
			func() float64 { return float64(f.InUse()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "brig_shedding", Help: "1 while new work is rejected because memory is short."},
			func() float64 {
				if f.shedding.Load() {
					return 1
				}
				return 0
			}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "brig_shed_total", Help: "Requests rejected because the server is short of memory."},
			func() float64 { return float64(f.shedCount.Load()) }),
	}
}

// Process is the memory of this process. The value is the limit in bytes.
type Process int64

// Limit implements Memory.
func (p Process) Limit() int64 { return int64(p) }

// Used implements Memory.
func (p Process) Used() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}
