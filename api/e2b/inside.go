package e2b

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"slices"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// closedPort is what is said of a port where nobody listens.
const closedPort = "The sandbox is running but port is not open"

// unreachable says why a request did not get into a sandbox.
type unreachable struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Code      int    `json:"code"`
}

// inside serves a request for a port of a sandbox.
func (d *Door) inside(w http.ResponseWriter, r *http.Request, t target) {
	own := t.port == portEnvd || t.port == portCode
	switch {
	case own && d.fromSandbox(r):
		d.fail(w, r, errForeignPage())
		return
	case own && allowPages(w, r):
		return
	case t.port == portEnvd && internalPaths[r.URL.Path]:
		d.fail(w, r, brig.Errorf(brig.NotFound, "there is nothing at this path"))
		return
	}
	unproven := d.unproven(r, t) // before what was known is forgotten
	ctx, s, err := d.enter(r, t.id)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	if s == nil && unproven {
		d.deny(w, r, t)
		return
	}
	if s == nil {
		d.gone(w, r, t)
		return
	}
	r = r.WithContext(ctx)
	r, done, err := d.bind(w, r, s, t)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	defer done()
	if t.port != portEnvd && isClosed(s) && !equal(r.Header.Get(headerTraffic), d.trafficToken(t.id, d.sourceIn(r))) {
		d.refuse(w, r, unreachable{SandboxID: t.id, Code: http.StatusForbidden,
			Message: "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing or wrong"})
		return
	}
	switch t.port {
	case portEnvd:
		door.Route(r, "e2b:envd")
		d.envd(w, r, s)
	case portCode:
		door.Route(r, "e2b:code")
		d.interpreter(w, r, s)
	default:
		door.Route(r, "e2b:port")
		d.forward(w, r, s, t)
	}
}

// enter finds a sandbox that runs, and the context in which the door may use
// it: as its tenant, for nobody has shown a key.
func (d *Door) enter(r *http.Request, id string) (ctx context.Context, s *brig.Sandbox, err error) {
	tenant, err := d.Owner(r.Context(), id)
	if brig.KindOf(err) == brig.NotFound {
		d.forget(id)
		return r.Context(), nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	ctx = brig.WithActor(r.Context(), brig.Actor{Name: "e2b", Tenant: tenant, Role: brig.Member})
	s, err = d.lookUp(ctx, id)
	return ctx, s, err
}

// internalPaths are envd's own, which E2B's servers call and nobody else.
var internalPaths = map[string]bool{
	"/init": true, "/freeze": true, "/unfreeze": true, "/collapse": true, "/fsfreeze": true, "/fsthaw": true,
}

func (d *Door) envd(w http.ResponseWriter, r *http.Request, s *brig.Sandbox) {
	if d.Envd == nil {
		d.fail(w, r, errMissing("the data plane"))
		return
	}
	d.Envd(w, r, d.access(s, d.sourceIn(r)))
}

// unproven reports whether a request needs a token of its sandbox and has
// none: only who has one is told that it is gone. To everybody else another
// tenant's sandbox is as one that never was.
func (d *Door) unproven(r *http.Request, t target) bool {
	token := r.Header.Get(headerToken)
	switch t.port {
	case portEnvd:
		if r.URL.Path == "/health" {
			return false // which clients ask to know whether it is there
		}
	case portCode:
		if token == "" && !executes(r) {
			return false
		}
	default:
		return false
	}
	if token != "" {
		return !equal(token, d.token(t.id, sourceOfToken(token)))
	}
	if t.port != portEnvd || !isSigned(r) || len(r.URL.RawQuery) > mostSigned {
		return true
	}
	got, want := r.URL.Query().Get("signature"), signature(r)
	return !slices.ContainsFunc(d.known.keys(t.id), func(key string) bool { return equal(got, want(d.token(t.id, key))) })
}

// deny answers as for a sandbox of which the request shows no token.
func (d *Door) deny(w http.ResponseWriter, r *http.Request, t target) {
	if t.port == portCode {
		d.fail(w, r, errNoToken())
		return
	}
	d.envd(w, r.WithContext(context.WithValue(r.Context(), boundTo{}, noSource)), &brig.Sandbox{ID: brig.ID(t.id)})
}

// gone answers for a sandbox that is not there, or not any more. Clients take
// exactly this status for that.
func (d *Door) gone(w http.ResponseWriter, r *http.Request, t target) {
	d.refuse(w, r, unreachable{SandboxID: t.id, Message: "The sandbox was not found", Code: http.StatusBadGateway})
}

// refuse answers programs with JSON, and people with a page.
func (d *Door) refuse(w http.ResponseWriter, r *http.Request, u unreachable) {
	if !wantsPage(r) {
		d.write(w, r, u.Code, u)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	w.WriteHeader(u.Code)
	what := "Sandbox " + u.SandboxID
	if u.Port != 0 {
		what += fmt.Sprintf(", port %d", u.Port)
	}
	_, err := fmt.Fprintf(w, "<!doctype html>\n<html lang=\"en\"><title>%s</title><h1>%s</h1><p>%s</p></html>\n",
		u.title(), html.EscapeString(u.Message), html.EscapeString(what))
	if err != nil {
		d.Log.DebugContext(r.Context(), "e2b: answer", "error", err)
	}
}

// wantsPage reports whether a person asks with a browser. The agent's name says
// so, as with E2B, whose tests have it alone; what a page's script asks for is
// read by the script, and a browser always says from where such a thing comes.
func wantsPage(r *http.Request) bool {
	h := r.Header
	accept := h.Get("Accept")
	switch {
	case !strings.Contains(r.UserAgent(), "Mozilla/"):
		return false
	case h.Get("Sec-Fetch-Mode") == "navigate":
		return true
	case h.Get("Sec-Fetch-Site") != "" || h.Get("X-Requested-With") != "":
		return false
	}
	return strings.Contains(accept, "text/html") || !strings.Contains(accept, "json")
}

// title is the title of the page that says it, where E2B has one of its own.
func (u unreachable) title() string {
	switch {
	case u.Code == http.StatusBadGateway && u.Port == 0:
		return "Sandbox Not Found"
	case u.Message == closedPort:
		return "Closed Port Error"
	}
	return http.StatusText(u.Code)
}
