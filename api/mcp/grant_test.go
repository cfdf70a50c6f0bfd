package mcp_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/mcp"
)

// Two grants of ann's key.
const (
	oneGrant   = brig.GrantPrefix + "one_0123456789012345678901234567890123456789"
	otherGrant = brig.GrantPrefix + "other_0123456789012345678901234567890123456789"
)

// grantKeys accepts keys and the grants of ann.
type grantKeys struct {
	keys
	mu        sync.Mutex // guards the fields below
	grantRole brig.Role  // role of the grants
	expired   bool
}

// GrantActor implements httpapi.Grants.
func (g *grantKeys) GrantActor(_ context.Context, grant string) (brig.Actor, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.expired || g.revoked.Load() {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the grant has expired")
	}
	return brig.Actor{Name: "ann", Tenant: "acme", Key: "k1", Role: g.grantRole, Grant: grant}, nil
}

// A session that a grant started belongs only to that grant, not to its key or
// to another grant. Its calls end when the grant ends or loses rights, and when
// its key is revoked. Calls of the key end only with the key.
func TestGrantSessions(t *testing.T) {
	for how, c := range map[string]struct {
		do         func(g *grantKeys)
		grant, key bool // whether the credential remains valid in this case
	}{
		"it ends":       {func(g *grantKeys) { g.expired = true }, false, true},
		"less is left":  {func(g *grantKeys) { g.grantRole = brig.Viewer }, true, true},
		"no key behind": {func(g *grantKeys) { g.revoked.Store(true) }, false, false},
	} {
		t.Run(how, func(t *testing.T) {
			g := &grantKeys{grantRole: brig.Member}
			s, full := newStub(), newStub()
			srv, _ := serve(t, s, func(o *mcp.Options) { o.Keys = g })
			other, _ := serve(t, full, func(o *mcp.Options) { o.Keys = g })
			granted, keyed := connect(t, srv.URL, oneGrant, true), connect(t, other.URL, annsKey, true)
			for who, secret := range map[string]string{"its key": annsKey, "another grant of the key": otherGrant} {
				if code, body := post(t, srv.URL, http.MethodPost, secret, granted.ID(), "2025-11-25", list); code != http.StatusNotFound {
					t.Errorf("%s: %d %s", who, code, body)
				}
			}
			if code, body := post(t, other.URL, http.MethodPost, oneGrant, keyed.ID(), "2025-11-25", list); code != http.StatusNotFound {
				t.Errorf("the grant in the key's session: %d %s", code, body)
			}
			go func() { _, _ = granted.CallTool(t.Context(), blockingCall()) }()
			go func() { _, _ = keyed.CallTool(t.Context(), blockingCall()) }()
			receive(t, s.begun, "its begin")
			receive(t, full.begun, "the key's begin")
			g.mu.Lock()
			c.do(g)
			g.mu.Unlock()
			receive(t, s.ended, "its end")
			// The client may already have ended the broken session.
			if code, body := post(t, srv.URL, http.MethodPost, oneGrant, granted.ID(), "2025-11-25", list); (code == http.StatusUnauthorized) == c.grant {
				t.Errorf("the grant, then: %d %s", code, strings.TrimSpace(body))
			}
			if !c.key {
				receive(t, full.ended, "the key's end")
				return
			}
			select {
			case <-full.ended:
				t.Error("what goes on with the key ended")
			default:
			}
		})
	}
}
