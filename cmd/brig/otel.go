package main

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/span"
)

// otelConfig is the part of the configuration about traces.
type otelConfig struct {
	// Endpoint is the URL of a collector that takes OTLP over HTTP. Without it
	// nothing is traced.
	Endpoint string `yaml:"endpoint"`
	// Headers are sent with what goes there.
	Headers map[string]string `yaml:"headers"`
	// Sample is the share of requests that are traced whose callers did not
	// decide it. Default all.
	Sample *float64 `yaml:"sample"`
	// Service is what this server is called in traces. Default brig.
	Service string `yaml:"service"`
}

// flushTime is how long what was traced may take to be sent when the server
// stops.
const flushTime = 3 * time.Second

// tracer returns what notes requests, nil if nobody wants that, and what sends
// the rest of it.
func (c *otelConfig) tracer(ctx context.Context, region string, log *slog.Logger) (_ trace.Tracer, flush func(), err error) {
	if c.Endpoint == "" {
		return nil, func() {}, nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, nil, brig.Errorf(brig.InvalidConfig, "otel.endpoint: %q is not the URL of a collector", brig.Clip(c.Endpoint, 80)).
			WithHint("for example http://127.0.0.1:4318")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	share := 1.0
	if c.Sample != nil {
		share = *c.Sample
	}
	if !(share >= 0 && share <= 1) {
		return nil, nil, brig.Errorf(brig.InvalidConfig, "otel.sample: %v is not a share", share).WithHint("give 0 to 1")
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithHeaders(c.Headers))
	if err != nil {
		return nil, nil, brig.Errorf(brig.InvalidConfig, "otel: the exporter cannot be made").Because(err)
	}
	name := c.Service
	if name == "" {
		name = "brig"
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("send traces", "err", err) }))
	p := sdk.NewTracerProvider(
		sdk.WithBatcher(exporter, sdk.WithBatchTimeout(time.Second)),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(share))),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", name), attribute.String("service.version", version()), attribute.String("cloud.region", region))),
	)
	return p.Tracer(span.Library), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			log.Warn("send the last traces", "err", err)
		}
	}, nil
}
