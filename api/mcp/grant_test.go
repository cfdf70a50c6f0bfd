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

// granting takes keys, and grants of ann's.
type granting struct {
	keys
	mu   sync.Mutex // guards the fields below
	left brig.Role  // what the grants leave
	over bool
}

// GrantActor implements door.Grants.
func (g *granting) GrantActor(_ context.Context, grant string) (brig.Actor, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || g.revoked.Load() {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the grant has expired")
	}
	return brig.Actor{Name: "ann", Tenant: "acme", Key: "k1", Role: g.left, Grant: grant}, nil
}

// A session that was begun with a grant is that grant's alone: not its key's,
// nor another grant's. What goes on in it ends when the grant ends, has less left,
// or loses its key; what goes on with the key ends with the key only.
func TestSessionsOfGrants(t *testing.T) {
	for how, c := range map[string]struct {
		do         func(g *granting)
		grant, key bool // are good then
	}{
		"it ends":       {func(g *granting) { g.over = true }, false, true},
		"less is left":  {func(g *granting) { g.left = brig.Viewer }, true, true},
		"no key behind": {func(g *granting) { g.revoked.Store(true) }, false, false},
	} {
		t.Run(how, func(t *testing.T) {
			g := &granting{left: brig.Member}
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
			go func() { _, _ = granted.CallTool(t.Context(), waits()) }()
			go func() { _, _ = keyed.CallTool(t.Context(), waits()) }()
			within(t, s.begun, "its begin")
			within(t, full.begun, "the key's begin")
			g.mu.Lock()
			c.do(g)
			g.mu.Unlock()
			within(t, s.ended, "its end")
			// The client may have ended the session by then, which was broken off.
			if code, body := post(t, srv.URL, http.MethodPost, oneGrant, granted.ID(), "2025-11-25", list); (code == http.StatusUnauthorized) == c.grant {
				t.Errorf("the grant, then: %d %s", code, strings.TrimSpace(body))
			}
			if !c.key {
				within(t, full.ended, "the key's end")
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
