package signin

import (
	"strconv"
	"time"
)

// CountRemembered returns the number of remembered logins.
func CountRemembered(p *Provider) int { return len(p.used.finished) }

// ReplayLogins finishes n logins. It returns how many are remembered and how many
// were refused.
func ReplayLogins(n int, now time.Time) (kept, refused int) {
	var r replays
	for i := range n {
		if !r.claim(strconv.Itoa(i), now.Add(time.Minute), now) {
			refused++
		}
	}
	return len(r.finished), refused
}
