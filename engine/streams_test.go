package engine

import (
	"testing"

	"github.com/brig-run/brig"
)

// The limits for a sandbox, a key and a tenant apply independently, and streams
// are counted exactly. Connections to ports do not count as watches.
func TestStreamLimits(t *testing.T) {
	s := newStreams(StreamLimits{Sandbox: 3, Connections: 5, Key: 6, Tenant: 8})
	call := func(op brig.Op, tenant, key, box string) *call {
		return &call{callAudit: callAudit{op: op, actor: brig.Actor{Tenant: tenant, Key: key}}, rec: &brig.Record{Sandbox: brig.Sandbox{ID: brig.ID(box), Tenant: tenant}}}
	}
	var leave []func()
	open := func(what string, want brig.Kind, op brig.Op, tenant, key, box string) {
		t.Helper()
		end, err := s.open(call(op, tenant, key, box))
		if brig.KindOf(err) != want {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil {
			leave = append(leave, end)
		} else if brig.AsError(err).RetryAfter == 0 {
			t.Errorf("%s: no time to wait", what)
		}
	}
	for range 3 {
		open("a watch", "", brig.OpWatch, "acme", "k1", "one")
	}
	for _, op := range []brig.Op{brig.OpWatch, brig.OpAttach, brig.OpRead} {
		open("one too many of the sandbox", brig.RateLimited, op, "acme", "k2", "one")
	}
	for range 3 {
		open("a connection", "", brig.OpDial, "acme", "k1", "one")
	}
	open("one too many of the key", brig.RateLimited, brig.OpDial, "acme", "k1", "one")
	for range 2 {
		open("another key's connection", "", brig.OpDial, "acme", "k2", "one")
	}
	open("one connection too many", brig.RateLimited, brig.OpDial, "acme", "k2", "one")
	open("one too many of the tenant", brig.RateLimited, brig.OpWatch, "acme", "k3", "two")
	open("another tenant", "", brig.OpWatch, "beta", "k9", "three")
	for _, end := range leave {
		end()
		end()
	}
	if len(s.byOwner) != 0 {
		t.Errorf("in the end: %v", s.byOwner)
	}
}
