package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts requests by route. Its labels are bounded: a route is a
// pattern of the router and never a path, and a method is a standard HTTP
// method.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

// NewMetrics registers the metrics with reg, or shares those that another API
// has registered.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "brig_http_requests_total", Help: "Requests answered, by method, route and status.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "brig_http_request_seconds", Help: "How long requests took, streams included.",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 10, 60, 600},
		}, []string{"method", "route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "brig_http_requests_in_flight", Help: "Requests being served now.",
		}),
	}
	var err error
	if m.requests, err = register(reg, m.requests); err == nil {
		m.seconds, err = register(reg, m.seconds)
	}
	if err == nil {
		m.inFlight, err = register(reg, m.inFlight)
	}
	if err != nil {
		return nil, fmt.Errorf("register HTTP metrics: %w", err)
	}
	return m, nil
}

func register[C prometheus.Collector](reg prometheus.Registerer, c C) (C, error) {
	err := reg.Register(c)
	if taken, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if old, ok := taken.ExistingCollector.(C); ok {
			return old, nil
		}
	}
	return c, err
}

// begin counts the start of a request and returns a function that counts its
// end.
func (m *Metrics) begin(r *http.Request) func(route string, status int) {
	if m == nil {
		return func(string, int) {}
	}
	start := time.Now()
	m.inFlight.Inc()
	return func(route string, status int) {
		m.inFlight.Dec()
		if status == 0 {
			status = http.StatusOK
		}
		if route == "" {
			route = "none"
		}
		m.requests.WithLabelValues(methodLabel(r.Method), route, strconv.Itoa(status)).Inc()
		m.seconds.WithLabelValues(methodLabel(r.Method), route).Observe(time.Since(start).Seconds())
	}
}

func methodLabel(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}
