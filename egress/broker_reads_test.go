package egress

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// The secrets of a sandbox are in the server's store. A request reads them only once, whether it is
// sent or refused, and regardless of the number of announced trailers. The control checks that an
// exclusive secret refuses announced trailers, whose check must not cause further reads.
func TestSecretsAreReadOnce(t *testing.T) {
	k := &keep{}
	l := newLab(t, true, k)
	s := key()
	s.Exclusive = true
	var reads atomic.Int64
	l.secrets = func() []Secret {
		reads.Add(1)
		return []Secret{s}
	}
	trailers := func(n int) http.Header {
		h := http.Header{}
		for i := range n {
			h.Set(fmt.Sprint("T-", i), "x")
		}
		return h
	}
	for _, c := range []struct {
		name, path string
		trailers   int
		status     int
	}{
		{"sent", "/", 0, http.StatusOK},
		{"refused", "/a/../b", 0, http.StatusBadRequest},
		{"refused because of credentials", "/?api_key=mine", 0, http.StatusForbidden},
		{"with trailers", "/", maxTrailers, http.StatusOK},
		{"with too many trailers", "/", 7000, http.StatusRequestHeaderFieldsTooLarge},
	} {
		reads.Store(0)
		r := l.request("POST", c.path, struct{ *strings.Reader }{strings.NewReader("body")})
		r.ContentLength, r.Trailer = -1, trailers(c.trailers)
		res, text := l.do(l.client(false), r)
		if n := reads.Load(); n != 1 || res.StatusCode != c.status {
			t.Errorf("%s: %d %.100s, the secrets are read %d times", c.name, res.StatusCode, text, n)
		}
		if c.trailers == maxTrailers && len(k.Trailer) != 0 {
			t.Errorf("control: the trailers are not refused: %v", k.Trailer)
		}
	}
}
