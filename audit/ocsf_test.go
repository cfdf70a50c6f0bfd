package audit_test

import (
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
)

func TestOCSFStatusFollowsErrorKind(t *testing.T) {
	denied := map[string]string{brig.DetailVerdict: "denied"}
	for name, c := range map[string]struct {
		event        brig.Event
		status, code string
		id, severity int
	}{
		"success":             {brig.Event{Phase: brig.Finish}, "Success", "", 1, 1},
		"error":               {brig.Event{Phase: brig.Finish, Kind: brig.NotFound}, "Failure", brig.NotFound.Code(), 2, 2},
		"intent":              {brig.Event{Phase: brig.Intent}, "Unknown", "", 0, 1},
		"denied, no error":    {brig.Event{Phase: brig.Observed, Detail: denied}, "Failure", "", 2, 2},
		"denied with a cause": {brig.Event{Phase: brig.Observed, Detail: denied, Kind: brig.PermissionDenied}, "Failure", brig.PermissionDenied.Code(), 2, 2},
	} {
		c.event.Op, c.event.Tenant = "egress.connect", "acme"
		got := audit.FromLineOCSF(audit.NewLine(brig.AuditLine{}, c.event))
		if got.Status != c.status || got.StatusCode != c.code || got.StatusID != c.id || got.SeverityID != c.severity {
			t.Errorf("%s: %q %q %d %d, want %q %q %d %d", name, got.Status, got.StatusCode, got.StatusID, got.SeverityID, c.status, c.code, c.id, c.severity)
		}
	}
}
