package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/cgroup"
)

// requestsConfig bounds the resources of the server that requests may use. For omitted fields, the
// defaults of package httpapi apply.
type requestsConfig struct {
	// Bodies bounds the total size of all request bodies in memory. TenantBodies bounds the total
	// size of one tenant's bodies.
	Bodies       size `yaml:"bodies"`
	TenantBodies size `yaml:"tenant_bodies"`
	// Open bounds the concurrent requests of one key. TenantOpen bounds those of one tenant.
	Open       integer `yaml:"open"`
	TenantOpen integer `yaml:"tenant_open"`
	// Memory is the server's own memory limit. Default: the limit of the
	// server's cgroup, if any; otherwise unlimited.
	Memory size `yaml:"memory"`
	// Unread bounds how long a client may leave a response unread.
	Unread duration `yaml:"unread"`
}

// streamsConfig bounds long-lived streams from sandboxes. For omitted fields, the defaults of
// package engine apply.
type streamsConfig struct {
	Sandbox     integer `yaml:"sandbox"`
	Connections integer `yaml:"connections"`
	Key         integer `yaml:"key"`
	Tenant      integer `yaml:"tenant"`
}

func (c streamsConfig) limits() engine.StreamLimits {
	return engine.StreamLimits{Sandbox: int(c.Sandbox), Connections: int(c.Connections), Key: int(c.Key), Tenant: int(c.Tenant)}
}

// collectFrom is the fraction of the memory limit above which the garbage
// collector runs regardless of its cost. The server's shims are in the same
// cgroup.
const collectFrom = 0.7

// bounded keeps the server within its memory limit until ctx ends: it first
// collects garbage more aggressively, and then rejects new work.
func (c requestsConfig) bounded(ctx context.Context, front *httpapi.Limiter, log *slog.Logger) {
	var m httpapi.Memory
	if own := cgroup.FindOwn(); own != nil {
		m = own
	}
	if c.Memory > 0 && (m == nil || int64(c.Memory) < m.Limit()) {
		m = httpapi.Process(c.Memory)
	}
	if m == nil {
		return
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(collectFrom * float64(m.Limit())))
	}
	log.Info("the server's memory is limited", "limit", m.Limit())
	go front.Watch(ctx, m, log)
}

// checkRequests rejects negative limits.
func (c *config) checkRequests() error {
	r, s := c.Requests, c.Streams
	for _, f := range []struct {
		name string
		n    int64
	}{
		{"requests.bodies", int64(r.Bodies)}, {"requests.tenant_bodies", int64(r.TenantBodies)}, {"requests.open", int64(r.Open)},
		{"requests.tenant_open", int64(r.TenantOpen)}, {"requests.unread", int64(r.Unread)}, {"requests.memory", int64(r.Memory)},
		{"streams.sandbox", int64(s.Sandbox)}, {"streams.connections", int64(s.Connections)}, {"streams.key", int64(s.Key)}, {"streams.tenant", int64(s.Tenant)},
	} {
		if f.n < 0 {
			return brig.Errorf(brig.InvalidConfig, "%s is negative", f.name).WithHint("give a number above 0, or leave it out")
		}
	}
	return nil
}

func (c requestsConfig) limits() httpapi.Limits {
	return httpapi.Limits{
		Bodies: int64(c.Bodies), TenantBodies: int64(c.TenantBodies), Open: int(c.Open), TenantOpen: int(c.TenantOpen),
		Unread: time.Duration(c.Unread),
	}
}

// parseProxies returns the reverse proxies whose forwarding headers are trusted.
func (c *config) parseProxies() (httpapi.Proxies, error) {
	p, err := httpapi.ParseProxies(c.TrustedProxies)
	if err != nil {
		return nil, brig.Errorf(brig.InvalidConfig, "trusted_proxies: %s", err).
			WithHint("list addresses or networks of your own reverse proxies, for example [127.0.0.1, 10.0.0.0/24]")
	}
	for _, n := range p {
		if n.Bits() == 0 {
			return nil, brig.Errorf(brig.InvalidConfig, "trusted_proxies: %s would trust every client", n).
				WithHint("list the networks of your own reverse proxies only: any client there can claim any address")
		}
	}
	return p, nil
}

// newHTTPServer returns an HTTP server with the handlers that precede every API: the
// client's address, traces, and limits of bodies.
func (c *config) newHTTPServer(h http.Handler, front *httpapi.Limiter, tracer trace.Tracer, log *slog.Logger) (*http.Server, error) {
	p, err := c.parseProxies()
	if err != nil {
		return nil, err
	}
	return httpapi.NewServer(p.Behind(httpapi.WithTracing(tracer, front.Handler(h))), log), nil
}
