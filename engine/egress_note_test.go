package engine_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// Every denied packet of a sandbox is logged or counted, including the last packets
// before the end of the session.
func TestLastEgressDenialsAreLogged(t *testing.T) {
	for _, end := range []string{"remove", "no rules", "close"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t, nil)
			ctx := withRole(t, brig.Admin)
			s, err := h.Create(ctx, brig.Spec{Name: "box", Egress: toHost})
			if err != nil {
				t.Fatal(err)
			}
			const packets = 500
			ping := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 198, 18, 0, 2, 203, 0, 113, 5, 8, 0, 0, 0, 0, 0, 0, 0}
			link := h.provider.Link(s.ID)
			for range packets {
				if err := link.Send(ping); err != nil {
					t.Fatal(err)
				}
				for link.Pending() > 100 { // a full link drops packets
					time.Sleep(time.Millisecond)
				}
			}
			for link.Pending() > 0 {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(200 * time.Millisecond) // wait until the last packet has been evaluated
			switch end {
			case "remove":
				err = h.Remove(ctx, "box")
			case "no rules":
				_, err = h.SetEgress(ctx, "box", brig.Egress{})
			case "close":
				h.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			logged, counted := 0, 0
			for by := time.Now().Add(time.Minute); logged+counted < packets && time.Now().Before(by); time.Sleep(50 * time.Millisecond) {
				lines, err := h.store.Audit(t.Context(), "acme", brig.AuditQuery{Limit: 1000})
				if err != nil {
					t.Fatal(err)
				}
				logged, counted = 0, 0
				for _, l := range lines {
					switch l.Op {
					case "egress.drop":
						logged++
					case "egress.more":
						n, _ := strconv.Atoi(strings.TrimSuffix(l.Detail[brig.DetailWhy], " more"))
						counted += n
					}
				}
			}
			if logged+counted != packets || counted == 0 {
				t.Errorf("of %d packets, %d are logged and %d counted", packets, logged, counted)
			}
		})
	}
}
