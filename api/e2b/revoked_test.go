package e2b_test

import (
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	dataplane "github.com/brig-run/brig/api/e2b/envd"
)

// TestRevokedTokensDoNotUseRateLimit verifies that requests with the tokens of a revoked key, and of
// its grants, do not count towards the tenant's rate limit. Control: the same requests count
// while the key is valid.
func TestRevokedTokensDoNotUseRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newEngineServer(t)
		k, holder := x.key(t, brig.KeySpec{Role: brig.Member, Kind: brig.E2BKey})
		_, other := x.key(t, brig.KeySpec{Role: brig.Member, Kind: brig.E2BKey})
		full := x.describe(t, "POST", "/v2/sandboxes", closed, k.Secret)
		grant := x.grant(t, holder, brig.GrantSpec{TTL: time.Hour})
		granted := x.describe(t, "GET", "/sandboxes/"+full.SandboxID, "", grant)
		granted.TrafficAccessToken = x.describe(t, "POST", "/v2/sandboxes/"+full.SandboxID+"/connect", `{"timeout":3600}`, grant).TrafficAccessToken
		operator := brig.WithActor(t.Context(), brig.Actor{Name: "root", Tenant: "acme", Role: brig.Operator})
		if _, err := x.UpdateTenant(operator, brig.Tenant{Name: "acme", Quota: brig.Quota{Rate: 5}}); err != nil {
			t.Fatal(err)
		}
		q := url.Values{"path": {"/workspace/a"}, "username": {"user"}, "signature": {dataplane.Signature("/workspace/a", "read", "user", full.EnvdAccessToken, 0)}}
		// statuses sends each request that the tokens allow, and counts the statuses.
		statuses := func() map[int]int {
			n := map[int]int{}
			for _, b := range []box{full, granted} {
				for _, way := range accessMethods {
					n[way.do(x, t.Context(), b).Code]++
				}
				n[x.servePort(t.Context(), b, 49983, "GET", "/health", "").Code]++
				n[x.servePort(t.Context(), b, 49999, "GET", "/health", "").Code]++
			}
			n[x.doRequest(t.Context(), "GET", "/files?"+q.Encode(), "").Code]++
			return n
		}
		// left uses up the rate limit and returns the number of calls that were allowed.
		left := func() (n int) {
			for {
				if _, err := x.List(other, brig.ListOptions{}); err != nil {
					return n
				}
				n++
			}
		}
		if n := statuses(); n[http.StatusTooManyRequests] == 0 {
			t.Errorf("the requests of a valid key are not limited: %v", n)
		}
		time.Sleep(2 * time.Second)
		if err := x.RevokeKey(x.admin, k.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if n := statuses(); len(n) > 1 || n[http.StatusUnauthorized] == 0 {
			t.Errorf("with the revoked key: %v", n)
		}
		if n := left(); n != 10 {
			t.Errorf("%d calls of another key are allowed then, want two seconds' worth", n)
		}
		time.Sleep(2 * time.Second) // allow the calls that remove the sandbox
	})
}
