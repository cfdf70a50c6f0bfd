package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// refusalLines waits until a tenant has at least the given number of lines about
// refusals, and returns these lines.
func refusalLines(t *testing.T, h *fixture, least int) (lines []string) {
	t.Helper()
	for by := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		all, err := h.store.Audit(t.Context(), "acme", brig.AuditQuery{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		lines = nil
		for _, l := range all {
			if l.Op == brig.ForkOp || l.Op == brig.NoRouteOp {
				lines = append(lines, fmt.Sprintf("%s %s %s of %s limit %s %s", l.Op, l.Detail[brig.DetailName],
					l.Detail[brig.DetailCount], l.Detail[brig.DetailTotal], l.Detail[brig.DetailLimit], l.Detail[brig.DetailVerdict]))
			}
		}
		if len(lines) >= least || time.Now().After(by) {
			return lines
		}
	}
}

// The engine writes at most one line of each kind when it reads a sandbox's
// counters, and one at the sandbox's end, regardless of the number of refusals.
// Each refusal is counted in exactly one line.
func TestRefusalsAreAudited(t *testing.T) {
	for _, end := range []string{"remove", "kill", "close"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t, nil)
			ctx := withRole(t, brig.Admin)
			limits := brig.DefaultLimitRange().Default
			limits.Processes = 32
			s, err := h.Create(ctx, brig.Spec{Name: "box", Limits: limits})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.Create(ctx, brig.Spec{Name: "quiet"}); err != nil { // the control: it has no refusals
				t.Fatal(err)
			}
			h.CountRefusals()
			h.provider.Refuse(s.ID, brig.Refusals{Processes: 5000, Connections: 7})
			h.CountRefusals()
			h.CountRefusals() // no new refusals since
			want := []string{"limit.processes box 5000 of 5000 limit 32 denied", "egress.unreachable box 7 of 7 limit  denied"}
			if got := refusalLines(t, h, len(want)); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Fatalf("%q, want %q", got, want)
			}
			h.provider.Refuse(s.ID, brig.Refusals{Processes: 5001, Connections: 7})
			switch end {
			case "remove":
				err = h.Remove(ctx, s.Spec.Name)
			case "kill":
				_, err = h.Kill(ctx, s.Spec.Name)
			case "close": // the sandbox keeps running, and the next server reads its counters
				h.Close()
				h.Engine = engine.New(t.Context(), h.Options)
				t.Cleanup(h.Engine.Close)
				err = h.Recover(t.Context())
				h.CountRefusals()
				want = append(want, "limit.processes box 5001 of 5001 limit 32 denied", "egress.unreachable box 7 of 7 limit  denied")
			}
			if err != nil {
				t.Fatal(err)
			}
			if end != "close" {
				want = append(want, "limit.processes box 1 of 5001 limit 32 denied")
			}
			if got := refusalLines(t, h, len(want)); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// The refusals of a run are recorded after its end.
func TestRunRefusalsAreAudited(t *testing.T) {
	h := newFixture(t, nil)
	h.provider.Refused = brig.Refusals{Processes: 3, Connections: 4}
	if _, err := h.Run(withRole(t, brig.Admin), brig.Program{SandboxName: "once", Command: []string{"echo"}}, brig.IO{}); err != nil {
		t.Fatal(err)
	}
	got := refusalLines(t, h, 2)
	if len(got) != 2 || !strings.HasPrefix(got[0], "limit.processes once 3 of 3 ") || !strings.HasPrefix(got[1], "egress.unreachable once 4 of 4 ") {
		t.Errorf("%q", got)
	}
}
