package httpapi

import (
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/brig-run/brig/internal/span"
)

// WithTracing records every request for OpenTelemetry. If a request has a
// traceparent header, its span is part of that trace. If t is nil, WithTracing
// returns next.
func WithTracing(t trace.Tracer, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	w3c := propagation.TraceContext{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		// The route is not known yet, and the path cannot name the span because
		// it may contain arbitrary data.
		ctx, s := t.Start(ctx, methodLabel(r.Method), trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", methodLabel(r.Method))))
		defer s.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// recordSpan records the response in the span.
func recordSpan(r *http.Request, rec *recorder) {
	s := span.From(r.Context())
	s.Set("http.route", rec.route)
	s.Set("brig.request", rec.id)
	s.SetInt("http.response.status_code", rec.status)
	if rec.status >= 500 {
		s.Fail(strconv.Itoa(rec.status))
	}
}
