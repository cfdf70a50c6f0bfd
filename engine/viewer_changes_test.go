package engine

import (
	"strconv"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestViewersOfTenantShareLimit checks that the viewers of a tenant share one limit if there are
// too many of them, and that the counters of idle viewers are removed.
func TestViewersOfTenantShareLimit(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	var vc viewerChanges
	admit := func(key string) bool {
		return vc.allow(brig.OpCreateGrant, brig.Actor{Tenant: "acme", Role: brig.Viewer, Key: key}, now) == nil
	}
	admitted := 0
	for i := range maxChangingViewers + 3*viewerChangeBurst {
		if admit("k" + strconv.Itoa(i)) {
			admitted++
		}
	}
	if len(vc.by) > maxChangingViewers+1 || admitted != maxChangingViewers+viewerChangeBurst {
		t.Errorf("%d callers, %d calls", len(vc.by), admitted)
	}
	now = now.Add(time.Hour)
	if !admit("new") || len(vc.by) != 1 {
		t.Errorf("%d callers after an hour", len(vc.by))
	}
}
