package engine

import (
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
)

// The table drops a sandbox when the engine has no state for it any more, so that
// the table does not grow with the number of ended sandboxes.
func TestSandboxTableDropsEndedSandboxes(t *testing.T) {
	var table sandboxes
	size := func(want int) {
		t.Helper()
		if len(table.by) != want {
			t.Errorf("the table has %d entries, want %d", len(table.by), want)
		}
	}
	if s := table.get("one"); s != (sandbox{}) {
		t.Errorf("an unknown sandbox is %+v", s)
	}
	table.update("one", func(*sandbox) {})
	size(0)
	table.update("one", func(s *sandbox) { s.backend, s.contexts, s.ending = &placement.Backend{}, &contexts{}, 1 })
	table.update("two", func(s *sandbox) { s.pendingDelete = &brig.Record{} })
	size(2)
	if taken := table.takeInstance("one"); taken.backend == nil || taken.contexts == nil {
		t.Errorf("drop returned %+v", taken)
	}
	if s := table.get("one"); s != (sandbox{ending: 1}) {
		t.Errorf("after drop: %+v", s)
	}
	table.update("one", func(s *sandbox) { s.ending-- })
	size(1)
	table.updateEach(func(_ brig.ID, s *sandbox) { s.pendingDelete = nil })
	size(0)
}
