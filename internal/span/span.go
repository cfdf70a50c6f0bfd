// Package span records the steps of a request as OpenTelemetry spans.
//
// A step is recorded if its parent in the context is recorded. If tracing is
// disabled, which is the default, the package only checks the context and
// allocates no memory. It has no global state.
package span

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Library is the instrumentation name of Brig's spans.
const Library = "github.com/brig-run/brig"

// Span is one step. The zero value does not record spans.
type Span struct{ s trace.Span }

// Start starts a child of the step in ctx. The parent step may already have ended. Start
// concatenates the parts of the name only if the step is recorded.
func Start(ctx context.Context, name ...string) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsSampled() {
		return ctx, Span{}
	}
	ctx, s := parent.TracerProvider().Tracer(Library).Start(ctx, strings.Join(name, ""))
	return ctx, Span{s}
}

// From returns the step in ctx.
func From(ctx context.Context) Span {
	if s := trace.SpanFromContext(ctx); s.IsRecording() {
		return Span{s}
	}
	return Span{}
}

// Name renames the step.
func (s Span) Name(name string) {
	if s.s != nil {
		s.s.SetName(name)
	}
}

// Set sets an attribute of the step. It ignores an empty value.
func (s Span) Set(key, value string) {
	if s.s != nil && value != "" {
		s.s.SetAttributes(attribute.String(key, value))
	}
}

// SetInt is like Set for an integer.
func (s Span) SetInt(key string, value int) {
	if s.s != nil {
		s.s.SetAttributes(attribute.Int(key, value))
	}
}

// Fail marks the step as failed. The reason must contain no confidential data.
func (s Span) Fail(reason string) {
	if s.s != nil {
		s.s.SetStatus(codes.Error, reason)
	}
}

// End ends the step.
func (s Span) End() {
	if s.s != nil {
		s.s.End()
	}
}
