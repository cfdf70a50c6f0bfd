package e2b

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// The holder of a sandbox's token acts as a member. Therefore, an actor with a lower role
// receives no token.
func TestTokensRequireMember(t *testing.T) {
	d := New(Options{Seed: []byte("seed")})
	box := &brig.Sandbox{ID: "sbx", Spec: brig.Spec{Labels: map[string]string{labelPublic: "false"}}}
	if !isClosed(box) {
		t.Fatal("the sandbox is open to the public")
	}
	for role, permitted := range map[brig.Role]bool{brig.Viewer: false, brig.Member: true, brig.Admin: true} {
		c := d.sandboxes.connected(brig.WithActor(t.Context(), brig.Actor{Role: role}), box)
		if (c.EnvdAccessToken != "") != permitted || (c.TrafficAccessToken != nil) != permitted {
			t.Errorf("a %s received %+v", role, c)
		}
	}
}

// An actor with fewer rights or a shorter lifetime than its key receives a token with the same
// restrictions, or no token.
func TestTokensCarryRestrictions(t *testing.T) {
	end := time.Now().Add(time.Minute)
	ofKeys := New(Options{Seed: []byte("seed"), KeyActor: func(context.Context, string) (brig.Actor, error) { return brig.Actor{}, nil }})
	ofNone := New(Options{Seed: []byte("seed")})
	box := &brig.Sandbox{ID: "sbx", Spec: brig.Spec{Labels: map[string]string{labelPublic: "false"}}}
	for name, c := range map[string]struct {
		actor        brig.Actor
		keyed, plain string // prefix of the tokens; "" for no token
	}{
		"a key":                {brig.Actor{Role: brig.Member, Key: "k1"}, "k1.", "own"},
		"a key in its scope":   {brig.Actor{Role: brig.Member, Key: "k1", Scopes: []string{"sandbox."}}, "k1.", ""},
		"a key with an end":    {brig.Actor{Role: brig.Member, Key: "k1", Expires: end}, "k1.", ""},
		"a grant":              {brig.Actor{Role: brig.Member, Key: "k1", Grant: "g1", Expires: end}, "k1~", ""},
		"a viewer's grant":     {brig.Actor{Role: brig.Viewer, Key: "k1", Grant: "g1", Expires: end}, "", ""},
		"a session":            {brig.Actor{Role: brig.Member, Key: "k1", Session: "s1"}, "", ""},
		"a person's token":     {brig.Actor{Role: brig.Member, Person: &brig.Person{}, Expires: end}, "", ""},
		"some sandboxes":       {brig.Actor{Role: brig.Member, Sandboxes: []string{"one"}}, "", ""},
		"nobody in particular": {brig.Actor{Role: brig.Member}, "", "own"},
	} {
		for d, begins := range map[*API]string{ofKeys: c.keyed, ofNone: c.plain} {
			described := d.sandboxes.connected(brig.WithActor(t.Context(), c.actor), box)
			got := []string{described.EnvdAccessToken}
			if described.TrafficAccessToken != nil {
				got = append(got, *described.TrafficAccessToken)
			}
			if begins == "" && (got[0] != "" || len(got) != 1) {
				t.Errorf("%s received %q", name, got)
			}
			if begins == "own" {
				begins = ""
			} else if begins == "" {
				continue
			}
			if len(got) != 2 || got[0] == got[1] {
				t.Errorf("%s received %q", name, got)
			}
			for _, token := range got {
				if !strings.HasPrefix(token, begins) || begins == "" && strings.Contains(token, ".") {
					t.Errorf("%s received %q", name, token)
				}
			}
		}
	}
}
