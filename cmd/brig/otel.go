package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/brig-run/brig"
	judged "github.com/brig-run/brig/internal/outbound"
	"github.com/brig-run/brig/internal/span"
	"github.com/brig-run/brig/internal/version"
)

// otelConfig is the traces section of the configuration.
type otelConfig struct {
	// Endpoint is the URL of a collector that accepts OTLP over HTTP. If it is
	// empty, no traces are exported.
	Endpoint string `yaml:"endpoint"`
	// Headers are sent to the collector.
	Headers map[string]string `yaml:"headers"`
	// Sample is the fraction of requests to trace, unless the caller made the sampling decision.
	// The default is 1.
	Sample *float64 `yaml:"sample"`
	// Service is the name of this server in traces. The default is brig.
	Service string `yaml:"service"`
}

// flushTimeout bounds the export of the remaining traces when the server stops.
const flushTimeout = 3 * time.Second

// tracer returns the tracer of requests and a function that exports the remaining traces. The
// tracer is nil if no collector is configured.
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
		return nil, nil, brig.Errorf(brig.InvalidConfig, "otel.sample: %v is not between 0 and 1", share).WithHint("for example 0.1 for a tenth of the requests")
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithHeaders(c.Headers),
		otlptracehttp.WithHTTPClient(&http.Client{
			Timeout:       10 * time.Second,
			Transport:     judged.NewDefaultTransport(brig.CheckConfiguredAddr),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}))
	if err != nil {
		return nil, nil, brig.Errorf(brig.InvalidConfig, "otel: cannot create the exporter").Because(err)
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
			attribute.String("service.name", name), attribute.String("service.version", version.String()), attribute.String("cloud.region", region))),
	)
	return p.Tracer(span.Library), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			log.Warn("failed to send the last traces", "err", err)
		}
	}, nil
}
