package kernels_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/kernels"
)

// granting takes keys, and a grant of one.
type granting struct {
	*scripted
	mu   sync.Mutex // guards the fields below
	left brig.Role  // what the grant leaves
	over bool
}

// GrantActor implements door.Grants.
func (g *granting) GrantActor(context.Context, string) (brig.Actor, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the grant has expired")
	}
	return brig.Actor{Name: "ann", Tenant: "acme", Role: g.left, Grant: "g1"}, nil
}

// A connection to a kernel ends when the grant does with which it was made, or
// when less is left of it, with the code that runs. One that a key made goes on.
func TestConnectionsOfGrants(t *testing.T) {
	for _, spec := range []string{kernels.Stateful, kernels.Ephemeral} {
		for how, do := range map[string]func(*granting){
			"it ends": func(g *granting) { g.over = true }, "less is left": func(g *granting) { g.left = brig.Viewer },
		} {
			t.Run(spec+", "+how, func(t *testing.T) {
				s := &scripted{boxes: map[string]*brig.Sandbox{}, count: map[string]int{}}
				g := &granting{scripted: s, left: brig.Member}
				d := kernels.New(kernels.Options{Service: s, Keys: g, Now: now})
				srv := httptest.NewServer(d)
				defer srv.Close()
				defer d.Close()
				grant := brig.GrantPrefix + strings.Repeat("g", 60)
				_, id := ask(t, "POST", srv.URL+"/api/kernels", key, `{"name":"`+spec+`"}`)
				_, other := ask(t, "POST", srv.URL+"/api/kernels", key, `{"name":"`+spec+`"}`)
				url := "ws" + strings.TrimPrefix(srv.URL, "http") + "/api/kernels/"
				granted, _, err := websocket.Dial(t.Context(), url+id+"/channels?token="+grant, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer granted.CloseNow()
				keyed := connect(t, srv.URL, other)
				for _, conn := range []*websocket.Conn{granted, keyed} {
					if err := conn.Write(t.Context(), websocket.MessageText, message("wait\n")); err != nil {
						t.Fatal(err)
					}
					await(t, conn, "waits")
				}
				g.mu.Lock()
				do(g)
				g.mu.Unlock()
				awaitEnd(t, granted)
				for deadline := time.Now().Add(10 * time.Second); interrupted(s) == 0; time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatal("the code is not interrupted")
					}
				}
				if n := interrupted(s); n != 1 {
					t.Errorf("%d pieces of code were interrupted", n)
				}
				const interrupt = `{"header":{"msg_id":"i","msg_type":"interrupt_request"},"channel":"control","content":{}}`
				if err := keyed.Write(t.Context(), websocket.MessageText, []byte(interrupt)); err != nil {
					t.Fatal(err)
				}
				await(t, keyed, "interrupt_reply") // it is still there
			})
		}
	}
}

// interrupted is how much code was interrupted.
func interrupted(s *scripted) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}
