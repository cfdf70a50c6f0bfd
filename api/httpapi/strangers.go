package httpapi

import (
	"maps"
	"net/http"
	"net/netip"
	"time"

	"github.com/brig-run/brig"
)

const (
	// freeFailures is the number of wrong keys that cause no delay. Each
	// further wrong key doubles the delay of its address.
	freeFailures = 20
	minWait      = time.Second
	maxWait      = time.Minute
	// forgetAfter is how long an address is remembered after its last wrong
	// key.
	forgetAfter      = 10 * time.Minute
	maxFailedClients = 10_000
)

// failedClient is an address that has sent wrong keys.
type failedClient struct {
	failures int
	last     time.Time
	until    time.Time // wrong keys receive a 429 response until then
}

// remainingWait returns how long an address must wait. The caller holds k.mu.
func (k *Keyring) remainingWait(addr string, now time.Time) time.Duration {
	if s := k.failedClients[addr]; s != nil && now.Sub(s.last) < forgetAfter {
		return s.until.Sub(now)
	}
	return 0
}

// recordFailure counts a wrong key. The caller holds k.mu.
func (k *Keyring) recordFailure(addr string, now time.Time) {
	s := k.failedClients[addr]
	if s == nil || now.Sub(s.last) >= forgetAfter {
		if len(k.failedClients) >= maxFailedClients {
			maps.DeleteFunc(k.failedClients, func(_ string, s *failedClient) bool { return now.Sub(s.last) >= forgetAfter })
		}
		if len(k.failedClients) >= maxFailedClients {
			clear(k.failedClients)
		}
		s = &failedClient{}
		k.failedClients[addr] = s
	}
	s.last = now
	if s.failures++; s.failures >= freeFailures {
		s.until = now.Add(min(minWait<<min(s.failures-freeFailures, 10), maxWait))
	}
}

func tooManyError(wait time.Duration) error {
	e := brig.Errorf(brig.RateLimited, "too many wrong keys from this address").
		WithHint("wait, and use a key that is good")
	e.RetryAfter = wait
	return e
}

// clientAddress returns the address of r's client. For IPv6, it returns the /64
// network, because a client usually has a whole /64 network.
func clientAddress(r *http.Request) string {
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
