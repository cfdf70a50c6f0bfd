// Package span notes how long the steps of a request took, for OpenTelemetry.
//
// A step is noted when the step that it is part of is: the context says so.
// Where nothing is traced, as is the default, that is all that is looked at,
// and nothing is allocated. There is nothing global.
package span

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Library is the name under which Brig's spans are known.
const Library = "github.com/brig-run/brig"

// Span is one step. The zero value notes nothing.
type Span struct{ s trace.Span }

// Start begins a step of whatever ctx is part of, which may be over already.
// Its name is put together only if somebody wants it.
func Start(ctx context.Context, name ...string) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsSampled() {
		return ctx, Span{}
	}
	ctx, s := parent.TracerProvider().Tracer(Library).Start(ctx, strings.Join(name, ""))
	return ctx, Span{s}
}

// From is the step that ctx is part of.
func From(ctx context.Context) Span {
	if s := trace.SpanFromContext(ctx); s.IsRecording() {
		return Span{s}
	}
	return Span{}
}

// Name gives the step another name.
func (s Span) Name(name string) {
	if s.s != nil {
		s.s.SetName(name)
	}
}

// Set notes something about the step; what is empty is nothing.
func (s Span) Set(key, value string) {
	if s.s != nil && value != "" {
		s.s.SetAttributes(attribute.String(key, value))
	}
}

// SetInt is Set of a number.
func (s Span) SetInt(key string, value int) {
	if s.s != nil {
		s.s.SetAttributes(attribute.Int(key, value))
	}
}

// Fail says that the step failed, in a word that tells nothing to strangers.
func (s Span) Fail(why string) {
	if s.s != nil {
		s.s.SetStatus(codes.Error, why)
	}
}

// End ends the step.
func (s Span) End() {
	if s.s != nil {
		s.s.End()
	}
}
