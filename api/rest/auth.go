package rest

import (
	"net/http"
	"net/url"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/signin"
)

// authAPI has the handlers for sign-in and sessions.
type authAPI struct{ *base }

// routes returns the routes with which people and browsers sign in.
func (a authAPI) routes() []route {
	get, post, del := http.MethodGet, http.MethodPost, http.MethodDelete
	return []route{
		{id: "whoami", method: get, pattern: "/v1/auth/whoami", tag: "sessions", summary: "Get the caller",
			handle: a.whoami, out: v1.Whoami{}},
		{id: "login", method: get, pattern: "/v1/auth/login", tag: "sessions", summary: "Start a sign-in",
			notes:  "Redirects the browser (302). It returns to /v1/auth/callback, which sets a session cookie.",
			handle: a.login, public: true, status: http.StatusFound, query: []parameter{{name: "next", doc: "path of this server to open after the sign-in; default /"}}},
		{id: "callback", method: get, pattern: signin.CallbackPath, tag: "sessions", summary: "Complete a sign-in",
			handle: a.callback, public: true, lax: true, page: true, query: []parameter{
				{name: "state", doc: "set by the identity provider"}, {name: "code", doc: "set by the identity provider"}, {name: "iss", doc: "set by the identity provider"}, {name: "error", doc: "set by the identity provider"},
			}},
		{id: "create-session", method: post, pattern: "/v1/auth/session", tag: "sessions", summary: "Start a browser session with an API key",
			notes:  "The response sets an HttpOnly cookie. By default the session ends after 8 hours without use, after 24 hours, and with the key.",
			handle: a.createSession, out: v1.NewSession{}, status: http.StatusCreated},
		{id: "list-sessions", method: get, pattern: "/v1/auth/sessions", tag: "sessions", summary: "List your sessions, or as an admin the tenant's, oldest first",
			handle: a.sessions, out: v1.Sessions{}, query: []parameter{{name: "tenant", doc: "name of a tenant; default: the caller's. Other tenants, and * for all, are for operators"}}},
		{id: "end-session", method: del, pattern: "/v1/auth/sessions/{id}", tag: "sessions", summary: "End a session and its requests",
			handle: a.endSession, status: http.StatusNoContent},
		{id: "logout", method: post, pattern: "/v1/auth/logout", tag: "sessions", summary: "End the caller's session",
			handle: a.logout, status: http.StatusNoContent},
	}
}

func (a authAPI) whoami(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	actor := brig.ActorFrom(r.Context())
	out := v1.FromActor(actor)
	if a.SignIn != nil {
		rule := v1.TokenRule(a.SignIn.TokenRule())
		out.Tokens = &rule
	}
	return httpapi.WriteJSON(w, http.StatusOK, out)
}

func (a authAPI) createSession(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	s, err := a.begin(w, r)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusCreated, v1.NewSession{Session: v1.FromSession(&s.Session), CSRF: s.CSRFToken})
}

// begin starts a new session in a browser and ends the browser's previous
// session.
func (a authAPI) begin(w http.ResponseWriter, r *http.Request) (*brig.NewSession, error) {
	s, err := a.Service.CreateSession(r.Context())
	if err != nil {
		return nil, err
	}
	if former, _, ok := a.keyring.SessionOf(r); ok {
		if err := a.Service.EndSession(brig.WithActor(r.Context(), former), ""); err != nil {
			httpapi.Log(r, err)
		}
	}
	a.keyring.Cookie.SetSession(w, r, s.Secret, s.Expires)
	return s, nil
}

func (a authAPI) sessions(w http.ResponseWriter, r *http.Request, q url.Values) error {
	list, err := a.Service.Sessions(r.Context(), q.Get("tenant"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromSessions(list))
}

func (a authAPI) endSession(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return writeNoContent(w, a.Service.EndSession(r.Context(), param(r, "id")))
}

func (a authAPI) logout(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	err := a.Service.EndSession(r.Context(), "")
	if err == nil {
		a.keyring.Cookie.ClearSession(w)
	}
	return writeNoContent(w, err)
}

// errNoIdentityProvider returns the error of a server without an identity
// provider.
func errNoIdentityProvider() error {
	return brig.Errorf(brig.FailedPrecondition, "this server has no identity provider").
		WithHint("configure oidc, or POST /v1/auth/session with a key")
}

func (a authAPI) login(w http.ResponseWriter, r *http.Request, q url.Values) error {
	if a.SignIn == nil {
		return errNoIdentityProvider()
	}
	if err := a.loginStarts.Reserve(r); err != nil {
		return err
	}
	b, err := a.SignIn.Begin(r.Context(), q.Get("next"))
	if err != nil {
		return err
	}
	a.keyring.Cookie.SetLogin(w, b.Cookie, time.Now().Add(signin.LoginTimeout))
	w.Header().Set("Location", b.URL)
	w.WriteHeader(http.StatusFound)
	return nil
}

func (a authAPI) callback(w http.ResponseWriter, r *http.Request, q url.Values) error {
	if a.SignIn == nil {
		return errNoIdentityProvider()
	}
	cookie, _ := a.keyring.Cookie.Login(r) // Finish rejects a callback without the cookie
	a.keyring.Cookie.ClearLogin(w)
	person, next, err := a.SignIn.Finish(r.Context(), signin.Callback{
		Cookie: cookie, State: q.Get("state"), Code: q.Get("code"), Issuer: q.Get("iss"), Error: q.Get("error"),
		Exchange: func() error { return a.codeExchanges.Reserve(r) },
	})
	if err != nil {
		return err
	}
	actor, err := a.SignIn.Actor(person)
	if brig.KindOf(err) == brig.Unauthenticated { // the identity provider knows the person, but no mapping admits them
		denied := *brig.AsError(err)
		denied.Kind = brig.PermissionDenied
		err = &denied
	}
	if err != nil {
		return err
	}
	s, err := a.begin(w, r.WithContext(brig.WithActor(r.Context(), actor)))
	if err != nil {
		return err
	}
	return httpapi.WriteSignedIn(w, s.CSRFToken, next)
}
