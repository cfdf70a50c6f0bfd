package rest

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
	"github.com/brig-run/brig/signin"
)

// authRoutes are those by which people and browsers come in.
func (a *api) authRoutes() []route {
	get, post, del := http.MethodGet, http.MethodPost, http.MethodDelete
	return []route{
		{id: "whoami", method: get, pattern: "/v1/auth/whoami", tag: "sessions", summary: "Say who is calling",
			handle: a.whoami, out: wire.Whoami{}},
		{id: "login", method: get, pattern: "/v1/auth/login", tag: "sessions", summary: "Send a browser to the identity provider",
			notes:  "Answers 302. The browser comes back to /v1/auth/callback, where it gets a session in a cookie.",
			handle: a.login, open: true, status: http.StatusFound, query: []parameter{{name: "next", doc: "a path of this server, where the browser is then; default /"}}},
		{id: "callback", method: get, pattern: signin.CallbackPath, tag: "sessions", summary: "Take a browser back from the identity provider",
			handle: a.callback, open: true, lax: true, page: true, query: []parameter{
				{name: "state", doc: "the provider's"}, {name: "code", doc: "the provider's"}, {name: "iss", doc: "the provider's"}, {name: "error", doc: "the provider's"},
			}},
		{id: "create-session", method: post, pattern: "/v1/auth/session", tag: "sessions", summary: "Begin a session with a key",
			notes:  "The session is in a cookie that pages cannot read. It ends with the key, after 8 hours without use, and after 24 hours, unless the server is told otherwise.",
			handle: a.createSession, out: wire.NewSession{}, status: http.StatusCreated},
		{id: "list-sessions", method: get, pattern: "/v1/auth/sessions", tag: "sessions", summary: "List one's own sessions, or to an admin a tenant's, oldest first",
			handle: a.sessions, out: wire.Sessions{}, query: []parameter{{name: "tenant", doc: "whose; default the caller's own; others, and * for all, are for operators"}}},
		{id: "end-session", method: del, pattern: "/v1/auth/sessions/{id}", tag: "sessions", summary: "End a session, and what goes on with it",
			handle: a.endSession, status: http.StatusNoContent},
		{id: "logout", method: post, pattern: "/v1/auth/logout", tag: "sessions", summary: "End the session by which the caller is here",
			handle: a.logout, status: http.StatusNoContent},
	}
}

func (a *api) whoami(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	actor := brig.ActorFrom(r.Context())
	out := wire.FromActor(actor)
	if secret, ok := a.ring.Cookie.Session(r); ok && actor.Session != "" {
		out.CSRF = door.CSRFToken(secret)
	}
	return door.WriteJSON(w, http.StatusOK, out)
}

func (a *api) createSession(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	s, err := a.begin(w, r)
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusCreated, wire.NewSession{Session: wire.FromSession(&s.Session), CSRF: door.CSRFToken(s.Secret)})
}

// begin gives a browser a session of its own: never one that it brought, which
// ends.
func (a *api) begin(w http.ResponseWriter, r *http.Request) (*brig.NewSession, error) {
	s, err := a.Service.CreateSession(r.Context())
	if err != nil {
		return nil, err
	}
	if former, _, ok := a.ring.SessionOf(r); ok {
		if err := a.Service.EndSession(brig.WithActor(r.Context(), former), ""); err != nil {
			door.Log(r, err)
		}
	}
	a.ring.Cookie.SetSession(w, s.Secret, s.Expires)
	return s, nil
}

func (a *api) sessions(w http.ResponseWriter, r *http.Request, q url.Values) error {
	list, err := a.Service.Sessions(r.Context(), q.Get("tenant"))
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, wire.FromSessions(list))
}

func (a *api) endSession(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return answerNothing(w, a.Service.EndSession(r.Context(), param(r, "id")))
}

func (a *api) logout(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	err := a.Service.EndSession(r.Context(), "")
	if err == nil {
		a.ring.Cookie.ClearSession(w)
	}
	return answerNothing(w, err)
}

// errNoPeople is what a server says that knows keys alone.
func errNoPeople() error {
	return brig.Errorf(brig.Unimplemented, "nobody signs in to this server but with a key").
		WithHint("configure oidc, or POST /v1/auth/session with a key")
}

func (a *api) login(w http.ResponseWriter, r *http.Request, q url.Values) error {
	if a.SignIn == nil {
		return errNoPeople()
	}
	b, err := a.SignIn.Begin(r.Context(), q.Get("next"))
	if err != nil {
		return err
	}
	a.ring.Cookie.SetLogin(w, b.Cookie, time.Now().Add(signin.LoginTime))
	w.Header().Set("Location", b.URL)
	w.WriteHeader(http.StatusFound)
	return nil
}

func (a *api) callback(w http.ResponseWriter, r *http.Request, q url.Values) error {
	if a.SignIn == nil {
		return errNoPeople()
	}
	cookie, _ := a.ring.Cookie.Login(r) // without it nothing comes of this
	a.ring.Cookie.ClearLogin(w)
	person, next, err := a.SignIn.Finish(r.Context(), signin.Returned{
		Cookie: cookie, State: q.Get("state"), Code: q.Get("code"), Issuer: q.Get("iss"), Error: q.Get("error"),
	})
	if err != nil {
		return err
	}
	actor, err := a.SignIn.Actor(person)
	if brig.KindOf(err) == brig.Unauthenticated { // the provider knows them; nobody here does
		denied := *brig.AsError(err)
		denied.Kind = brig.PermissionDenied
		err = &denied
	}
	if err != nil {
		return err
	}
	if _, err := a.begin(w, r.WithContext(brig.WithActor(r.Context(), actor))); err != nil {
		return err
	}
	// A redirect from here would still count as one from the provider's site:
	// the cookie would not come along. From a page of ours it does.
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	_, err = fmt.Fprintf(w, "<!doctype html><title>Brig</title><meta http-equiv=\"refresh\" content=\"0;url=%[1]s\"><a href=\"%[1]s\">Go on</a>\n",
		html.EscapeString(next))
	return err
}
