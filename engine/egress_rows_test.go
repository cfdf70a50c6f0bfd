package engine

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
	"github.com/brig-run/brig/store/mem"
)

// newNotesEngine returns an engine for tests of egress notes, with a settable
// clock.
func newNotesEngine(t *testing.T) (e *Engine, clock *time.Time) {
	t.Helper()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e = newParts(t.Context(), Options{Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	e.cancel() // stops the automatic writing of lines
	return e, &now
}

// Decisions about a tenant's sandboxes are in the audit log before the tenant is removed. A later
// tenant of the same name gets none of them.
func TestTenantRemovalFlushesEgressAudit(t *testing.T) {
	e, now := newNotesEngine(t)
	store := mem.New()
	e.Store = store
	for _, tenant := range []string{"acme", "other"} {
		rec := &brig.Record{Sandbox: brig.Sandbox{ID: brig.ID("b-" + tenant), Tenant: tenant}}
		for range maxFullLines + 5 {
			e.noteEgress(rec, egress.Event{Kind: egress.Connect, Host: "api.test", Port: 443, Rule: -1})
		}
	}
	e.closeNotes("acme")
	lines, err := store.Audit(t.Context(), "acme", brig.AuditQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	events := make([]brig.Event, len(lines))
	for i, l := range lines {
		events[i] = l.Event
	}
	if whole, more := countLines(t, events); whole+more != maxFullLines+5 {
		t.Errorf("%d lines and %d counted decisions are in the audit log", whole, more)
	}
	for _, l := range e.takeNotes(*now, true) {
		if l.Tenant == "acme" {
			t.Errorf("a note is left for a later tenant: %+v", l)
		}
	}
}

// countLines returns the number of full lines, and the number of decisions that are only counted.
func countLines(t *testing.T, lines []brig.Event) (whole, more int) {
	t.Helper()
	for _, l := range lines {
		if l.Op != "egress.more" {
			whole++
			continue
		}
		n, err := strconv.Atoi(l.Detail[brig.DetailCount])
		if err != nil {
			t.Fatalf("%+v", l)
		}
		more += n
	}
	return whole, more
}

// Thousands of equal requests of a sandbox cause only a few lines per interval,
// which contain the destination and the count. Every request is counted.
func TestAllowedRequestsAreCounted(t *testing.T) {
	e, now := newNotesEngine(t)
	rec := &brig.Record{Sandbox: brig.Sandbox{ID: "b1", Tenant: "acme"}}
	const requests = 3871
	var lines []brig.Event
	for i := range requests {
		*now = now.Add(4 * time.Millisecond) // about 15 s in total
		e.noteEgress(rec, egress.Event{Kind: egress.Request, Host: "api.test", Port: 443, Method: "GET", Path: fmt.Sprint("/", i), Allowed: true, Rule: 2, Secrets: []string{"gh"}})
		lines = append(lines, e.takeNotes(*now, false)...)
	}
	*now = now.Add(noteInterval)
	lines = append(lines, e.takeNotes(*now, false)...)
	whole, more := countLines(t, lines)
	if whole+more != requests || len(lines) > maxFullLines+1 {
		t.Errorf("%d requests are %d lines and %d counted ones, in %d rows", requests, whole, more, len(lines))
	}
	last := lines[len(lines)-1]
	for name, want := range map[string]string{
		brig.DetailHost: "api.test", brig.DetailPort: "443", brig.DetailRule: "2", brig.DetailVerdict: "allowed",
		brig.DetailWhat: "request", brig.DetailSecrets: "gh", brig.DetailCount: strconv.Itoa(requests - maxFullLines),
	} {
		if last.Detail[name] != want || last.Sandbox != "b1" {
			t.Errorf("%s is %q, want %q", name, last.Detail[name], want)
		}
	}
}

// The number of a tenant's lines is limited, regardless of the numbers of hosts and
// sandboxes. Another tenant has a separate limit.
func TestEgressLogLinesAreLimited(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		e, now := newNotesEngine(t)
		var lines []brig.Event
		events := 0
		ask := func(box, tenant, host string) {
			rec := &brig.Record{Sandbox: brig.Sandbox{ID: brig.ID(box), Tenant: tenant}}
			e.noteEgress(rec, egress.Event{Kind: egress.Connect, Host: host, Port: 443, Allowed: allowed, Rule: -1})
			events++
		}
		for range 600 { // ten minutes
			*now = now.Add(time.Second)
			for i := range 100 {
				ask("one", "acme", fmt.Sprintf("n%d-%d.test", now.Unix(), i))
			}
			lines = append(lines, e.takeNotes(*now, false)...)
		}
		one := len(lines)
		if limit := fullLineBurst + 600*int(time.Second/fullLineInterval) + 11*(maxNoteKinds+2); one > limit {
			t.Errorf("allowed %t: one sandbox has %d lines, and may have %d", allowed, one, limit)
		}
		for range 60 {
			*now = now.Add(time.Second)
			for i := range 500 {
				ask(fmt.Sprint("box", i), "acme", fmt.Sprint(now.Unix(), ".test"))
			}
			lines = append(lines, e.takeNotes(*now, false)...)
		}
		if more := len(lines) - one; more > tenantLineBurst+60*tenantLineRate+maxNoteKinds {
			t.Errorf("allowed %t: 500 sandboxes have %d lines in a minute", allowed, more)
		}
		ask("other", "other", "api.test")
		if got := e.takeNotes(*now, false); len(got) == 0 || got[len(got)-1].Tenant != "other" && got[0].Tenant != "other" {
			t.Errorf("allowed %t: another tenant has no line", allowed)
		}
		events--
		lines = append(lines, e.takeNotes(*now, true)...)
		if whole, more := countLines(t, lines); whole+more != events {
			t.Errorf("allowed %t: %d of %d are told or counted", allowed, whole+more, events)
		}
		if len(e.notes.sandboxes) > 0 {
			t.Errorf("%d sandboxes are still counted", len(e.notes.sandboxes))
		}
	}
}

// The counters of sandboxes and tenants without further requests are freed.
func TestEgressCountersAreFreed(t *testing.T) {
	e, now := newNotesEngine(t)
	for i := range 100 {
		rec := &brig.Record{Sandbox: brig.Sandbox{ID: brig.ID(fmt.Sprint(i)), Tenant: fmt.Sprint("t", i)}}
		e.noteEgress(rec, egress.Event{Kind: egress.Lookup, Host: "a.test"})
	}
	for range 20 {
		*now = now.Add(noteInterval)
		e.takeNotes(*now, false)
	}
	if len(e.notes.sandboxes)+len(e.notes.tenants) > 0 {
		t.Errorf("%d sandboxes and %d tenants are still counted", len(e.notes.sandboxes), len(e.notes.tenants))
	}
}
