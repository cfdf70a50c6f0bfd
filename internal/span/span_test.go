package span_test

import (
	"context"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/brig-run/brig/internal/span"
)

func step(ctx context.Context) {
	ctx, s := span.Start(ctx, "step")
	s.Set("key", "value")
	s.SetInt("n", 1)
	_, inner := span.Start(ctx, "in", "ner")
	inner.Fail("SB009")
	inner.End()
	s.End()
}

// TestDisabledAllocatesNothing checks that disabled tracing does not allocate.
func TestDisabledAllocatesNothing(t *testing.T) {
	ctx := context.WithValue(t.Context(), new(int), 1)
	if n := testing.AllocsPerRun(1000, func() { step(ctx) }); n != 0 {
		t.Errorf("two steps allocate %v times with tracing off", n)
	}
}

func TestStepsAreRecordedWhenSampled(t *testing.T) {
	for _, c := range []struct {
		sampler sdk.Sampler
		want    []string
	}{
		{sdk.AlwaysSample(), []string{"inner", "step", "late"}},
		{sdk.NeverSample(), nil},
	} {
		kept := tracetest.NewInMemoryExporter()
		p := sdk.NewTracerProvider(sdk.WithSyncer(kept), sdk.WithSampler(c.sampler))
		ctx, root := p.Tracer("test").Start(t.Context(), "root")
		step(ctx)
		span.From(ctx).Name("renamed")
		root.End()
		span.From(ctx).Name("too late")
		_, late := span.Start(context.WithoutCancel(ctx), "late")
		late.End()
		spans := map[string]tracetest.SpanStub{}
		for _, s := range kept.GetSpans() {
			spans[s.Name] = s
		}
		for _, name := range c.want {
			if s, ok := spans[name]; !ok || s.SpanContext.TraceID() != root.SpanContext().TraceID() {
				t.Errorf("no %s in the trace; there are %v", name, spans)
			}
		}
		if c.want == nil {
			if len(spans) != 0 {
				t.Errorf("%v of a trace that nobody wants", spans)
			}
			continue
		}
		if spans["inner"].Parent.SpanID() != spans["step"].SpanContext.SpanID() || spans["step"].Parent.SpanID() != spans["renamed"].SpanContext.SpanID() {
			t.Errorf("the steps are not one in another: %v", spans)
		}
		if spans["inner"].Status.Description != "SB009" || len(spans["step"].Attributes) != 2 {
			t.Errorf("what was noted is not there: %v", spans)
		}
	}
}

func BenchmarkOff(b *testing.B) {
	ctx := b.Context()
	for range 5 { // as deep as the context of a request
		ctx = context.WithValue(ctx, new(int), 1) //nolint:fatcontext // the benchmark measures nested contexts
	}
	b.ReportAllocs()
	for b.Loop() {
		step(ctx)
	}
}
