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

// grantKeys accepts keys and a grant of one of the keys.
type grantKeys struct {
	*scriptedService
	mu        sync.Mutex // guards the fields below
	grantRole brig.Role  // role of the grant
	expired   bool
}

// GrantActor implements httpapi.Grants.
func (g *grantKeys) GrantActor(context.Context, string) (brig.Actor, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.expired {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the grant has expired")
	}
	return brig.Actor{Name: "ann", Tenant: "acme", Role: g.grantRole, Grant: "g1"}, nil
}

// A connection to a kernel and the code that runs for it end when the client's grant ends or
// loses rights. The connection of a client with a key continues.
func TestConnectionsEndWithGrant(t *testing.T) {
	for _, spec := range []string{kernels.Stateful, kernels.Ephemeral} {
		for how, do := range map[string]func(*grantKeys){
			"grant ends": func(g *grantKeys) { g.expired = true }, "grant is narrowed": func(g *grantKeys) { g.grantRole = brig.Viewer },
		} {
			t.Run(spec+", "+how, func(t *testing.T) {
				s := &scriptedService{boxes: map[string]*brig.Sandbox{}, count: map[string]int{}, gone: map[string]chan struct{}{}}
				g := &grantKeys{scriptedService: s, grantRole: brig.Member}
				d := kernels.New(kernels.Options{Service: s, Keys: g, Now: now})
				srv := httptest.NewServer(d)
				defer srv.Close()
				defer d.Close()
				grant := brig.GrantPrefix + strings.Repeat("g", 60)
				_, id := doRequest(t, "POST", srv.URL+"/api/kernels", key, `{"name":"`+spec+`"}`)
				_, other := doRequest(t, "POST", srv.URL+"/api/kernels", key, `{"name":"`+spec+`"}`)
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
					waitForText(t, conn, "waits")
				}
				g.mu.Lock()
				do(g)
				g.mu.Unlock()
				waitForEnd(t, granted, websocket.StatusPolicyViolation)
				for deadline := time.Now().Add(10 * time.Second); countInterrupts(s) == 0; time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatal("the code is not interrupted")
					}
				}
				if n := countInterrupts(s); n != 1 {
					t.Errorf("%d pieces of code were interrupted", n)
				}
				const interrupt = `{"header":{"msg_id":"i","msg_type":"interrupt_request"},"channel":"control","content":{}}`
				if err := keyed.Write(t.Context(), websocket.MessageText, []byte(interrupt)); err != nil {
					t.Fatal(err)
				}
				waitForText(t, keyed, "interrupt_reply") // the connection is still open
			})
		}
	}
}

// countInterrupts returns the number of interrupted runs.
func countInterrupts(s *scriptedService) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}
