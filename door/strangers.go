package door

import (
	"maps"
	"net/http"
	"net/netip"
	"time"

	"github.com/brig-run/brig"
)

const (
	// freeMisses is how many wrong keys cost nothing. From then on each makes
	// its address wait twice as long as the one before.
	freeMisses  = 20
	firstWait   = time.Second
	longestWait = time.Minute
	// forgetAfter is how long an address is remembered that shows no more
	// wrong keys.
	forgetAfter  = 10 * time.Minute
	maxStrangers = 10_000
)

// stranger is an address from which wrong keys came.
type stranger struct {
	misses int
	last   time.Time
	until  time.Time // nothing is looked up before
}

// wait says how long an address has to wait. The caller holds k.mu.
func (k *Keyring) wait(addr string, now time.Time) time.Duration {
	if s := k.strangers[addr]; s != nil && now.Sub(s.last) < forgetAfter {
		return s.until.Sub(now)
	}
	return 0
}

// missed notes a wrong key. The caller holds k.mu.
func (k *Keyring) missed(addr string, now time.Time) {
	s := k.strangers[addr]
	if s == nil || now.Sub(s.last) >= forgetAfter {
		if len(k.strangers) >= maxStrangers {
			maps.DeleteFunc(k.strangers, func(_ string, s *stranger) bool { return now.Sub(s.last) >= forgetAfter })
		}
		if len(k.strangers) >= maxStrangers {
			clear(k.strangers)
		}
		s = &stranger{}
		k.strangers[addr] = s
	}
	s.last = now
	if s.misses++; s.misses >= freeMisses {
		s.until = now.Add(min(firstWait<<min(s.misses-freeMisses, 10), longestWait))
	}
}

func tooMany(wait time.Duration) error {
	e := brig.Errorf(brig.RateLimited, "too many wrong keys came from this address").
		WithHint("wait, and use a key that is good")
	e.RetryAfter = wait
	return e
}

// client is from where r came. Of IPv6 everybody has a whole /64.
func client(r *http.Request) string {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	a := ap.Addr().Unmap()
	if a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}
