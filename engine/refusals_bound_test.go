package engine

import (
	"testing"

	"github.com/brig-run/brig"
)

// Lines about refusals count against the tenant's limit of lines. Lines beyond the
// limit are only counted.
func TestRefusalLinesAreLimited(t *testing.T) {
	e, now := newNotesEngine(t)
	e.notes.writing = true // prevents other goroutines from writing the lines
	const boxes = 3 * tenantLineBurst
	for i := range boxes {
		rec := &brig.Record{Sandbox: brig.Sandbox{ID: newID(), Tenant: "acme"}}
		e.queueRefusals(rec, brig.ForkOp, int64(i+1), int64(i+1), map[string]string{})
	}
	lines := e.takeNotes(*now, false)
	*now = now.Add(noteInterval)
	lines = append(lines, e.takeNotes(*now, false)...)
	whole, more := countLines(t, lines)
	if whole > tenantLineBurst || whole+more != boxes {
		t.Errorf("%d sandboxes have %d lines and %d counted ones", boxes, whole, more)
	}
}
