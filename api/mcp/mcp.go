// Package mcp is the door for agents that speak the Model Context Protocol:
// tools that run code and look after sandboxes, and resources for their files
// and logs. It is served over HTTP, streamable, to whoever has a key, and on
// standard input and output to whoever has started the process.
//
// A tool decodes its arguments, calls brig.Service once and encodes what comes
// of it. What lives longer than a call is a sandbox, with its lease, never the
// protocol's session: that is no more than a place to send answers to.
package mcp

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// Path is where the door is.
const Path = "/mcp"

// maxMessage bounds a message; what is larger is written to a file in parts.
const maxMessage = 16 * brig.MiB

// sendTimeout is how long a client may leave one event unread.
const sendTimeout = 5 * time.Minute

// The headers of the protocol.
const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
)

// sessionless is the first version of the protocol without sessions. Versions
// are dates.
const sessionless = "2026-07-28"

// Options are what the door is made of. Service is needed, and Keys for HTTP.
type Options struct {
	Service brig.Service
	Keys    door.Keys
	// Log is for the operator. Default: none.
	Log *slog.Logger
	// Registry collects the metrics of the requests. Default: a new one.
	Registry *prometheus.Registry
	// Hosts are the names by which clients may know the server, beside the
	// loopback ones.
	Hosts   []string
	Version string
	// Idle is how long a session stays that nobody uses. Default 30 min.
	Idle time.Duration
	// Sessions is how many a tenant may have. Default 256.
	Sessions int
}

// The defaults of Options.
const (
	defaultIdle     = 30 * time.Minute
	defaultSessions = 256
)

// Door serves the protocol over HTTP.
type Door struct {
	Options
	desk     *desk
	sessions *sessions
	visits   *visits
	ctx      context.Context // ends when the server is to stop
	lasting  http.Handler    // for versions with sessions
	single   http.Handler    // for those without
	handler  http.Handler
}

// Wants reports whether a request is for this door.
func Wants(r *http.Request) bool { return r.URL.Path == Path }

// New returns the door. When ctx ends, clients that only listen are let go.
func New(ctx context.Context, o Options) (*Door, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Idle == 0 {
		o.Idle = defaultIdle
	}
	if o.Sessions == 0 {
		o.Sessions = defaultSessions
	}
	metrics, err := door.NewMetrics(o.Registry)
	if err != nil {
		o.Log.Warn("mcp: HTTP is not measured", "error", err)
	}
	d := &Door{Options: o, ctx: ctx, sessions: newSessions(o.Sessions), visits: &visits{}}
	d.desk = &desk{service: o.Service, log: o.Log, version: o.Version, sessions: d.sessions, visits: d.visits}
	server, err := d.desk.server()
	if err != nil {
		return nil, err
	}
	get := func(*http.Request) *mcp.Server { return server }
	// Who may call, and from where, was asked before anything comes here.
	d.lasting = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		SessionTimeout: o.Idle, MaxRequestBodyBytes: maxMessage, DisableLocalhostProtection: true,
	})
	d.single = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxMessage, DisableLocalhostProtection: true,
	})
	d.handler = door.Wrap(o.Log, metrics, door.Guard(o.Hosts, "", door.Auth(o.Keys, http.HandlerFunc(d.serve))))
	return d, nil
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	door.Route(r, Path)
	d.handler.ServeHTTP(w, r)
}

// Close ends all sessions, with the calls that go on in them.
func (d *Door) Close() { d.sessions.close() }

// serve hands a request to the protocol, for as long as its key is good and
// somebody waits for the answer.
func (d *Door) serve(w http.ResponseWriter, r *http.Request) {
	door.Route(r, Path)
	if err := d.admit(w, r); err != nil {
		door.Fail(w, r, err)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if r.Method == http.MethodGet {
		// Who only listens does not hold up a server that wants to end.
		defer context.AfterFunc(d.ctx, func() { cancel(context.Cause(d.ctx)) })()
	}
	r = r.WithContext(ctx)
	defer d.visits.begin(r)()
	if r.Header.Get(versionHeader) >= sessionless {
		d.single.ServeHTTP(patient{w}, r)
		return
	}
	if r.Method == http.MethodDelete {
		d.sessions.part(r.Header.Get(sessionHeader))
	}
	d.lasting.ServeHTTP(patient{w}, r)
}

// admit reads a request's body, and finds its session. Those of others are as
// if they were not there.
func (d *Door) admit(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
		if err != nil {
			return door.BodyError(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		door.LongBody(w) // it has come
	}
	id := r.Header.Get(sessionHeader)
	if id != "" && r.Header.Get(versionHeader) < sessionless && !d.sessions.owned(id, brig.ActorFrom(r.Context())) {
		return brig.Errorf(brig.NotFound, "there is no such session").WithHint("begin one with initialize; sandboxes outlive sessions")
	}
	return nil
}

// patient is an answer of which each part may take some time to be read, and
// not more.
type patient struct{ http.ResponseWriter }

// Unwrap lets http.ResponseController reach the connection.
func (p patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write implements http.ResponseWriter.
func (p patient) Write(b []byte) (int, error) {
	// A writer that knows no deadlines, as in tests, has none.
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(sendTimeout))
	return p.ResponseWriter.Write(b)
}
