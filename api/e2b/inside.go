package e2b

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// closedPort is the message for a port on which no process listens.
const closedPort = "The sandbox is running but port is not open"

// unreachableError is the response to a request that did not reach a sandbox.
type unreachableError struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Code      int    `json:"code"`
}

// ports serves the requests to ports of sandboxes, and to envd by a signed URL.
type ports struct {
	*env
	tokens      *tokens
	finder      *finder
	interpreter *interpreter
	forwarder   *forwarder
	// signatureLimit limits the rate of wrong signatures from one client
	// address. Each signature is compared with the signatures of all sandboxes.
	signatureLimit *httpapi.Limit
	// limitedSearches admits the searches of addresses that signatureLimit has
	// limited.
	limitedSearches *httpapi.SecondChance
	// searching admits one search at a time among the signatures of all keys.
	searching chan struct{}
}

// serve serves a request to a port of a sandbox.
func (p *ports) serve(w http.ResponseWriter, r *http.Request, t target) {
	builtIn := t.port == portEnvd || t.port == portCode
	switch {
	case builtIn && p.fromSandbox(r):
		p.fail(w, r, errForeignPage())
		return
	case t.port == portEnvd && allowPages(w, r):
		return
	case t.port == portCode && isPreflight(r):
		// No web page may call the interpreter. It is for programs only.
		p.fail(w, r, brig.Errorf(brig.PermissionDenied, "the code interpreter does not answer web pages"))
		return
	case t.port == portEnvd && internalPaths[r.URL.Path]:
		p.fail(w, r, brig.Errorf(brig.NotFound, "there is nothing at this path"))
		return
	}
	lacksToken := p.tokens.lacksToken(r, t) // before the cached ids are removed
	if lacksToken && !p.mayBeOpen(r, t) {
		// Such requests must not use any resources of the tenant, not even its
		// rate limit.
		p.deny(w, r, t)
		return
	}
	actor, exists, err := p.finder.owner(r, t.id, !p.tokens.isProven(r, t, lacksToken))
	if err != nil {
		p.fail(w, r, err)
		return
	}
	var s *brig.Sandbox
	if exists {
		// A request with a token that has become invalid must not use the
		// tenant's rate limit either, so the token is checked before lookUp,
		// which counts as a call.
		bound, done, err := p.tokens.bind(w, r.WithContext(brig.WithActor(r.Context(), actor)), t, actor.Tenant)
		if err != nil {
			p.fail(w, r, err)
			return
		}
		defer done()
		if s, err = p.finder.lookUp(brig.WithActor(bound.Context(), actor), t.id); err != nil {
			p.fail(w, r, err)
			return
		}
		r = bound
	}
	mayResume := s != nil && resumesByTraffic(s) && p.tokens.mayResume(r, t)
	if gone := s == nil || s.State == brig.Paused && !mayResume; gone {
		if lacksToken {
			p.deny(w, r, t)
			return
		}
		p.writeGone(w, r, t)
		return
	}
	if !mayResume { // the sandbox may be paused while the request waits for it
		r = r.WithContext(brig.WithoutResume(r.Context()))
	}
	if err := httpapi.LeaseOf(r.Context()).Begin(brig.ActorFrom(r.Context())); err != nil {
		p.fail(w, r, err)
		return
	}
	if t.port != portEnvd && isClosed(s) && !p.tokens.hasTrafficToken(r, t.id, p.tokens.sourceIn(r)) {
		p.writeUnreachable(w, r, unreachableError{SandboxID: t.id, Code: http.StatusForbidden,
			Message: "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing or wrong"})
		return
	}
	if !lacksToken { // otherwise envd and the interpreter reject the request
		if err := p.resumeForTraffic(brig.WithActor(r.Context(), actor), s); err != nil {
			p.fail(w, r, err)
			return
		}
	}
	switch t.port {
	case portEnvd:
		httpapi.RecordRoute(r, "e2b:envd")
		p.serveEnvd(w, r, s)
	case portCode:
		httpapi.RecordRoute(r, "e2b:code")
		p.interpreter.serve(w, r, s)
	default:
		httpapi.RecordRoute(r, "e2b:port")
		p.forwarder.forward(w, r, s, t)
	}
}

// owner returns the actor on whose behalf the API looks up a sandbox: the
// sandbox's tenant, because the request has no API key. visitor means that the
// request has no token of the sandbox either. exists is false if no tenant has
// such a sandbox.
func (f *finder) owner(r *http.Request, id string, visitor bool) (a brig.Actor, exists bool, err error) {
	tenant, err := f.Owner(r.Context(), id)
	if brig.KindOf(err) == brig.NotFound {
		f.forget(id)
		return a, false, nil
	}
	return brig.Actor{Name: "e2b", Tenant: tenant, Role: brig.Member, Visitor: visitor}, err == nil, err
}

// resolve finds a running or paused sandbox as its owner. It returns nil if there is none.
func (f *finder) resolve(r *http.Request, id string, visitor bool) (*brig.Sandbox, error) {
	a, exists, err := f.owner(r, id, visitor)
	if err != nil || !exists {
		return nil, err
	}
	return f.lookUp(brig.WithActor(r.Context(), a), id)
}

// internalPaths are envd's internal paths, which only E2B's own servers call.
var internalPaths = map[string]bool{
	"/init": true, "/freeze": true, "/unfreeze": true, "/collapse": true, "/fsfreeze": true, "/fsthaw": true,
}

func (p *ports) serveEnvd(w http.ResponseWriter, r *http.Request, s *brig.Sandbox) {
	if p.Envd == nil {
		p.fail(w, r, errUnsupported("the data plane"))
		return
	}
	p.Envd(w, r, p.tokens.access(s, p.tokens.sourceIn(r)))
}

// lacksToken reports whether a request needs a token of its sandbox but has
// none. Only a client with a token may learn that the sandbox has ended. For
// all other clients, another tenant's sandbox cannot be distinguished from one
// that never existed.
func (k *tokens) lacksToken(r *http.Request, t target) bool {
	token := r.Header.Get(headerToken)
	switch t.port {
	case portEnvd:
		if isHealthCheck(r, t) {
			return false // clients use it to check whether the sandbox exists
		}
	case portCode:
		if isHealthCheck(r, t) && token == "" {
			return false
		}
		if traffic := r.Header.Get(headerTraffic); token == "" && traffic != "" {
			return !k.hasToken(r, t.id, sourceOfToken(traffic))
		}
	default:
		return false
	}
	if token != "" {
		return !equalSecrets(token, k.token(t.id, sourceOfToken(token)))
	}
	if t.port != portEnvd || !isSigned(r) || len(r.URL.RawQuery) > maxSignedText {
		return true
	}
	tenant, err := k.Owner(r.Context(), t.id)
	if err != nil {
		tenant = "" // only the keys that received its token can have signed
	}
	_, signed := k.signer(r.Context(), t.id, tenant, newURLSignature(r))
	return !signed
}

// mayResume reports whether a request may resume a paused sandbox whose traffic
// resumes it. A health check needs no token, but without a token it must not
// use the tenant's CPU time.
func (k *tokens) mayResume(r *http.Request, t target) bool {
	return !isHealthCheck(r, t) || k.hasAnyToken(r, t.id)
}

// isHealthCheck reports whether r is a health check of envd or of the interpreter, which
// needs no token.
func isHealthCheck(r *http.Request, t target) bool {
	switch t.port {
	case portEnvd:
		return r.URL.Path == "/health"
	case portCode:
		return !needsToken(r)
	}
	return false
}

// hasAnyToken is like hasToken, for the source in the token.
func (k *tokens) hasAnyToken(r *http.Request, id string) bool {
	if token := r.Header.Get(headerToken); token != "" {
		return k.hasToken(r, id, sourceOfToken(token))
	}
	traffic := r.Header.Get(headerTraffic)
	return traffic != "" && k.hasToken(r, id, sourceOfToken(traffic))
}

// isProven reports whether a request has a token of its sandbox, even if it needs none.
func (k *tokens) isProven(r *http.Request, t target, lacksToken bool) bool {
	switch {
	case t.port != portEnvd && t.port != portCode:
		return k.portSource(r, t.id) != "" || k.hasTrafficToken(r, t.id, "")
	case isHealthCheck(r, t):
		return k.hasAnyToken(r, t.id)
	}
	return !lacksToken
}

// mayBeOpen reports whether a request without its token may be for an interpreter that
// Options.Unsecured opens. Only the sandbox's labels show whether it is open. A wrong access
// token is always rejected.
func (p *ports) mayBeOpen(r *http.Request, t target) bool {
	return p.Unsecured && t.port == portCode && r.Header.Get(headerToken) == ""
}

// deny answers a request that has no token of its sandbox.
func (p *ports) deny(w http.ResponseWriter, r *http.Request, t target) {
	if t.port == portCode {
		httpapi.RecordRoute(r, "e2b:code")
		p.fail(w, r, errNoToken())
		return
	}
	httpapi.RecordRoute(r, "e2b:envd")
	p.serveEnvd(w, r.WithContext(context.WithValue(r.Context(), boundTo{}, noSource)), &brig.Sandbox{ID: brig.ID(t.id)})
}

// writeGone answers a request to a sandbox that does not exist or has ended.
// Clients expect exactly this status.
func (e *env) writeGone(w http.ResponseWriter, r *http.Request, t target) {
	e.writeUnreachable(w, r, unreachableError{SandboxID: t.id, Message: "The sandbox was not found", Code: http.StatusBadGateway})
}

// writeUnreachable answers programs with JSON and browsers with a page.
func (e *env) writeUnreachable(w http.ResponseWriter, r *http.Request, u unreachableError) {
	if !isBrowser(r) {
		e.write(w, r, u.Code, u)
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
		e.Log.DebugContext(r.Context(), "e2b: answer", "error", err)
	}
}

// isBrowser reports whether a person sends the request with a browser. It
// checks the user agent, as E2B does, because E2B's tests send only that
// header. The responses to a page's script are not shown to a person, and
// browsers always mark the script's requests with fetch headers.
func isBrowser(r *http.Request) bool {
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

// title returns E2B's title of the error page, or an empty string if E2B has
// none for this error.
func (u unreachableError) title() string {
	switch {
	case u.Code == http.StatusBadGateway && u.Port == 0:
		return "Sandbox Not Found"
	case u.Message == closedPort:
		return "Closed Port Error"
	}
	return http.StatusText(u.Code)
}
