// Package mcp is the API for agents that use the Model Context Protocol. It has
// tools that run code and manage sandboxes, and resources for the sandboxes'
// files and logs. It serves streamable HTTP to clients with an API key. It can
// also serve the parent process over standard input and output.
//
// A tool decodes its arguments, calls brig.Service once and encodes the result.
// Only sandboxes outlive a call, until their lease ends. A session of the
// protocol is an address for responses. Until it ends, the sandboxes that its
// calls have used count as in use.
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
	"github.com/brig-run/brig/api/httpapi"
)

// Path is the path of the API.
const Path = "/mcp"

// maxMessage is the maximum size of a message. Clients write larger files in
// parts.
const maxMessage = 16 * brig.MiB

// Headers of the protocol.
const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
)

// sessionless is the first protocol version without sessions. Versions are
// dates.
const sessionless = "2026-07-28"

// Service is the part of brig.Service that the tools use.
type Service interface {
	brig.SandboxService
	brig.LeaseService
	brig.ExecService
	brig.RunService
	brig.CodeService
	brig.GuestService
	brig.ImageService
	brig.InspectService
}

// Options configure the API. Service is required. Keys is required for HTTP.
type Options struct {
	Service Service
	Keys    httpapi.Keys
	// Log is the log for the operator. Default: no log.
	Log *slog.Logger
	// Registry collects the request metrics. Default: a new registry.
	Registry *prometheus.Registry
	// Hosts are the host names of the server, in addition to the loopback
	// names.
	Hosts   []string
	Version string
	// Idle is the time after which an unused session ends. Default: 30 minutes.
	Idle time.Duration
	// Sessions is the maximum number of sessions of a tenant. One key or person
	// may have half of them. Default: 256.
	Sessions int
}

// Defaults of Options.
const (
	defaultIdle     = 30 * time.Minute
	defaultSessions = 256
)

// API serves the protocol over HTTP.
type API struct {
	Options
	toolServer       *toolServer
	sessions         *sessions
	httpRequests     *httpRequests
	ctx              context.Context // ends when the server shuts down
	stateful         http.Handler    // for versions with sessions
	statelessHandler http.Handler    // for versions without sessions
	handler          http.Handler
}

// Matches reports whether a request is for this API.
func Matches(r *http.Request) bool { return r.URL.Path == Path }

// New returns the API. When ctx ends, the API ends the requests of clients that
// only listen.
func New(ctx context.Context, o Options) (*API, error) {
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
	metrics, err := httpapi.NewMetrics(o.Registry)
	if err != nil {
		o.Log.Warn("mcp: failed to register the HTTP metrics", "error", err)
	}
	d := &API{Options: o, ctx: ctx, sessions: newSessions(o.Sessions), httpRequests: &httpRequests{}}
	d.toolServer = &toolServer{service: o.Service, log: o.Log, version: o.Version, sessions: d.sessions, httpRequests: d.httpRequests, shield: httpapi.ShieldOf(o.Keys)}
	server, err := d.toolServer.newServer()
	if err != nil {
		return nil, err
	}
	get := func(*http.Request) *mcp.Server { return server }
	// Authentication and origin checks happen before this handler.
	d.stateful = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		SessionTimeout: o.Idle, MaxRequestBodyBytes: maxMessage, DisableLocalhostProtection: true,
	})
	d.statelessHandler = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxMessage, DisableLocalhostProtection: true,
	})
	d.handler = httpapi.Wrap(o.Log, metrics, httpapi.Guard(o.Hosts, "", httpapi.Auth(o.Keys, http.HandlerFunc(d.serve))))
	return d, nil
}

// ServeHTTP implements http.Handler.
func (d *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	httpapi.RecordRoute(r, Path)
	d.handler.ServeHTTP(w, r)
}

// Close ends all sessions and their calls.
func (d *API) Close() { d.sessions.close() }

// serve passes a request to the protocol's handler. The request is canceled
// when its key becomes invalid or the client disconnects.
func (d *API) serve(w http.ResponseWriter, r *http.Request) {
	httpapi.RecordRoute(r, Path)
	messages, err := d.admit(w, r)
	if err != nil {
		httpapi.Fail(w, r, err)
		return
	}
	if messages != nil && !d.adapt(w, r, messages) {
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if r.Method == http.MethodGet {
		// A request of a client that only listens must not delay the shutdown.
		defer context.AfterFunc(d.ctx, func() { cancel(context.Cause(d.ctx)) })()
	}
	r = r.WithContext(withTurn(ctx))
	defer d.httpRequests.begin(r)()
	if r.Header.Get(versionHeader) >= sessionless {
		d.statelessHandler.ServeHTTP(w, r)
		return
	}
	if r.Method == http.MethodDelete {
		d.sessions.endCalls(r.Header.Get(sessionHeader))
	}
	d.stateful.ServeHTTP(w, r)
}

// admit reads the body of a request and checks that the caller owns the
// request's session. It returns NotFound for a session of another owner.
func (d *API) admit(w http.ResponseWriter, r *http.Request) (body []byte, err error) {
	if r.Method == http.MethodPost {
		if body, err = readMessage(w, r); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	id := r.Header.Get(sessionHeader)
	if id != "" && r.Header.Get(versionHeader) < sessionless && !d.sessions.isOwner(r.Context(), id) {
		return nil, brig.Errorf(brig.NotFound, "there is no such session").WithHint("begin one with initialize; sandboxes outlive sessions")
	}
	return body, nil
}

// adapt adapts the messages of a request to the library, which would answer
// some of them with plain text. It returns false if it has answered all of them.
func (d *API) adapt(w http.ResponseWriter, r *http.Request, body []byte) bool {
	m, invalid := decodeMessages(body)
	if version := r.Header.Get(versionHeader); invalid == nil && m.batch && version >= batchless {
		invalid = errBatch()
	}
	if invalid != nil {
		if err := writeProtocolError(w, invalid); err != nil {
			d.Log.DebugContext(r.Context(), "mcp: answer", "error", err)
		}
		return false
	}
	if r.Header.Get(versionHeader) >= sessionless {
		return true // the library answers unknown methods as this version requires
	}
	if body = m.replaceUnknown(body); body == nil {
		w.WriteHeader(http.StatusAccepted)
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return true
}

// The operation of a message is known only after the message has been read. A
// caller that is not allowed to run code can therefore send only a small body,
// and a body with too many messages is rejected before it is decoded.
const (
	maxSmallMessage = 64 << 10
	maxBatch        = 64 // messages in one body
)

// readMessage reads the body of a request.
func readMessage(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := int64(maxMessage)
	if brig.ActorFrom(r.Context()).Role < brig.Member {
		limit = maxSmallMessage
	}
	body, err := httpapi.ReadBody(w, r, limit)
	if err != nil {
		return nil, err
	}
	n, err := httpapi.CountElements(body)
	if err == nil && n > maxBatch {
		err = brig.Errorf(brig.InvalidArgument, "there are more than %d messages in one request", maxBatch).WithHint("send them one by one")
	}
	return body, err
}
