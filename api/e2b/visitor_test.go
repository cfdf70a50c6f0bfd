package e2b_test

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
)

// actorLog records the actors of the calls that look up a sandbox or connect to a port.
type actorLog struct {
	*stub
	mu     sync.Mutex // guards the field below
	actors []brig.Actor
}

func (l *actorLog) add(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.actors = append(l.actors, brig.ActorFrom(ctx))
}

// take returns the actors since the last call of take.
func (l *actorLog) take() []brig.Actor {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.actors
	l.actors = nil
	return out
}

func (l *actorLog) Get(ctx context.Context, name string) (*brig.Sandbox, error) {
	l.add(ctx)
	return l.stub.Get(ctx, name)
}

func (l *actorLog) Dial(ctx context.Context, name string, port int) (net.Conn, error) {
	l.add(ctx)
	return l.stub.Dial(ctx, name, port)
}

// TestUnauthenticatedCallsAreMarked verifies that a request to envd or to the interpreter without a
// token makes no call as the tenant. All calls of such a request have a visitor as their actor,
// and do not count towards the tenant's rate limit. Control: the same request with a token.
func TestUnauthenticatedCallsAreMarked(t *testing.T) {
	var log *actorLog
	_, d, srv := serve(t, func(o *e2b.Options) {
		log = &actorLog{stub: o.Service.(*stub)}
		o.Service = log
	})
	d.Unsecured = true // opens the sandbox's interpreter
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	access := []string{"X-Access-Token", token1}
	for _, c := range []struct {
		name, method, path, port string
		token                    []string
		unsecured                bool
		status                   int
		calls, visitor           bool
	}{
		{name: "envd", method: "GET", path: "/envs", port: "49983", status: 401},
		{name: "a file without a signature", method: "GET", path: "/files?path=a", port: "49983", status: 401},
		{name: "a wrong signature", method: "GET", path: "/files?path=a&signature=v1_x", port: "49983", status: 401},
		{name: "code", method: "POST", path: "/execute", port: "49999", status: 401},
		{name: "contexts", method: "GET", path: "/contexts", port: "49999", status: 401},
		{name: "a wrong token", method: "POST", path: "/execute", port: "49999", token: []string{"X-Access-Token", "x"}, unsecured: true, status: 401},
		{name: "an open interpreter", method: "GET", path: "/contexts", port: "49999", unsecured: true, status: 200, calls: true, visitor: true},
		{name: "health of envd", method: "GET", path: "/health", port: "49983", status: 204, calls: true, visitor: true},
		{name: "health of the interpreter", method: "GET", path: "/health", port: "49999", status: 200, calls: true, visitor: true},
		{name: "a closed port", method: "GET", path: "/", port: "9", status: 502, calls: true, visitor: true},
		{name: "an application's token", method: "GET", path: "/", port: "9", token: []string{"X-Access-Token", "x"}, status: 502, calls: true, visitor: true},

		{name: "envd", method: "GET", path: "/envs", port: "49983", token: access, status: 200, calls: true},
		{name: "contexts", method: "GET", path: "/contexts", port: "49999", token: access, status: 200, calls: true},
		{name: "health of envd", method: "GET", path: "/health", port: "49983", token: access, status: 204, calls: true},
	} {
		d.Unsecured = c.unsecured
		log.take()
		headers := append([]string{"E2b-Sandbox-Id", "sb1", "E2b-Sandbox-Port", c.port}, c.token...)
		resp, body := doRequest(t, c.method, srv.URL+c.path, "", headers...)
		actors := log.take()
		if resp.StatusCode != c.status || len(actors) > 0 != c.calls {
			t.Errorf("%s, token %q: %d %s after the calls %+v", c.name, c.token, resp.StatusCode, body, actors)
		}
		if slices.ContainsFunc(actors, func(a brig.Actor) bool { return a.Visitor != c.visitor }) {
			t.Errorf("%s, token %q: the calls are %+v", c.name, c.token, actors)
		}
	}
}

// TestUnauthenticatedHealthCheckDoesNotResume verifies that a health check without a token does not
// resume a paused sandbox, regardless of the spelling of the path.
func TestUnauthenticatedHealthCheckDoesNotResume(t *testing.T) {
	s, _, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base","autoPause":true,"autoResume":{"enabled":true}}`)
	if _, err := s.change("sb1", func(b *brig.Sandbox) { b.State, b.Pause = brig.Paused, &brig.Pause{} }); err != nil {
		t.Fatal(err)
	}
	to := []string{"E2b-Sandbox-Id", "sb1", "E2b-Sandbox-Port", "49999"}
	for _, path := range []string{"/health", "/health/"} {
		if resp, body := doRequest(t, http.MethodGet, srv.URL+path, "", to...); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%s without a token: %d %s", path, resp.StatusCode, body)
		}
	}
	// Control: the same request with the token.
	if resp, body := doRequest(t, http.MethodGet, srv.URL+"/health/", "", append(to, "X-Access-Token", token1)...); resp.StatusCode != http.StatusOK {
		t.Errorf("with a token: %d %s", resp.StatusCode, body)
	}
}
