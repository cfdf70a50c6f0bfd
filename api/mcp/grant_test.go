package mcp_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/mcp"
)

// Both grants belong to ann's key.
const (
	oneGrant   = brig.GrantPrefix + "one_0123456789012345678901234567890123456789"
	otherGrant = brig.GrantPrefix + "other_0123456789012345678901234567890123456789"
)

// grantKeys accepts keys and ann's grants.
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
func TestSessionBelongsToItsGrant(t *testing.T) {
	for how, c := range map[string]struct {
		do         func(g *grantKeys)
		grant, key bool // whether the credential remains valid in this case
	}{
		"grant ends":        {func(g *grantKeys) { g.expired = true }, false, true},
		"grant is narrowed": {func(g *grantKeys) { g.grantRole = brig.Viewer }, true, true},
		"key is revoked":    {func(g *grantKeys) { g.revoked.Store(true) }, false, false},
	} {
		t.Run(how, func(t *testing.T) {
			g := &grantKeys{grantRole: brig.Member}
			s, full := newStub(), newStub()
			srv, _ := serve(t, s, func(o *mcp.Options) { o.Keys = g })
			other, _ := serve(t, full, func(o *mcp.Options) { o.Keys = g })
			granted, keyed := connect(t, srv.URL, oneGrant, true), connect(t, other.URL, annsKey, true)
			for caller, secret := range map[string]string{"its key": annsKey, "another grant of the key": otherGrant} {
				if code, body := post(t, srv.URL, http.MethodPost, secret, granted.ID(), "2025-11-25", list); code != http.StatusNotFound {
					t.Errorf("%s: %d %s", caller, code, body)
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

// The person's tokens expire in this order.
const (
	firstToken  = "eyJhbGciOiJub25lIn0.1.x"
	secondToken = "eyJhbGciOiJub25lIn0.2.x"
	thirdToken  = "eyJhbGciOiJub25lIn0.3.x"
)

// personKeys accepts each token of a person until the token ends.
type personKeys struct {
	keys
	mu    sync.Mutex // guards the field below
	ended map[string]bool
}

func (p *personKeys) end(token string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[token] = true
}

// PersonActor implements httpapi.People.
func (p *personKeys) PersonActor(_ context.Context, token string) (brig.Actor, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended[token] {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the token has expired")
	}
	lifetimes := map[string]time.Duration{firstToken: time.Hour, secondToken: 2 * time.Hour, thirdToken: 3 * time.Hour}
	return brig.Actor{
		Name: "ann", Tenant: "acme", Role: brig.Member, Person: &brig.Person{Issuer: "idp", Subject: "ann"},
		Expires: time.Now().Add(lifetimes[token]),
	}, nil
}

// A person's session keeps its sandboxes in use beyond the end of the first token if the person
// has renewed the token, until the newest token ends. A later token begins a new use, which
// lasts until the session ends.
func TestSessionIsFoundWithRenewedToken(t *testing.T) {
	p := &personKeys{ended: map[string]bool{}}
	s := newStub()
	srv, _ := serve(t, s, func(o *mcp.Options) { o.Keys = p })
	session := connect(t, srv.URL, firstToken, true).ID()
	send := func(token, body string) {
		t.Helper()
		if code, body := post(t, srv.URL, http.MethodPost, token, session, "2025-11-25", body); code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
	}
	notReleased := func(when string) {
		t.Helper()
		select {
		case <-s.released:
			t.Fatalf("%s the session holds nothing any more", when)
		default:
		}
	}
	const create = `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"create_sandbox","arguments":{}}}`
	const block = `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"wait"}}}`
	send(firstToken, create)
	send(secondToken, list)
	send(firstToken, list) // repeating an earlier token does not make it the newest
	go func() { post(t, srv.URL, http.MethodPost, firstToken, session, "2025-11-25", block) }()
	receive(t, s.begun, "a call with the first token")
	p.end(firstToken)
	receive(t, s.ended, "the end of the first token")
	send(secondToken, list)
	notReleased("after the end of the first token")
	p.end(secondToken)
	receive(t, s.released, "the end of its use")

	s.released = make(chan struct{})
	send(thirdToken, create)
	notReleased("with a further token")
	if code, _ := post(t, srv.URL, http.MethodDelete, thirdToken, session, "", ""); code != http.StatusNoContent {
		t.Errorf("it is ended with %d", code)
	}
	receive(t, s.released, "the end of its use with the session")
}
