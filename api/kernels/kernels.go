// Package kernels serves the API of a Jupyter kernel gateway for the container
// executors of smolagents. It supports kernelspecs, kernels, and their channels
// over WebSocket.
//
// A kernel of the spec python3 is a sandbox with an interpreter that keeps its
// variables. A kernel of the spec python3-ephemeral runs each piece of code in
// a fresh sandbox. A document of variables, functions, classes and imports is
// passed from each run to the next. This package stores the document and never
// interprets it. The difference is invisible to clients.
package kernels

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// Service is the part of the engine that the API uses.
type Service interface {
	brig.SandboxService
	brig.RunService
	brig.CodeService
	// Authorize checks that the actor may call op, which is an operation of
	// brig.KernelOps, and then calls do. It audits the operation.
	Authorize(ctx context.Context, op brig.Op, name string, do func(brig.Tenant) error) error
}

// Options configure the API. Service and Keys are required.
type Options struct {
	Service Service
	Keys    httpapi.Keys
	// Default is the spec of a kernel whose request does not name one: Stateful
	// or Ephemeral. Default: Stateful.
	Default string
	// Image is the image of kernels. Default: the default image of the Service.
	Image string
	// Egress are the kernels' egress rules. Default: no connections.
	Egress brig.Egress
	// Idle is the time after which an unused kernel ends. Default: 30 minutes.
	Idle time.Duration
	// Timeout limits the run time of a piece of code. Default: 10 minutes.
	Timeout time.Duration
	// LimitRange holds the limits of the Service. Default: brig.DefaultLimitRange.
	LimitRange brig.LimitRange
	// Hosts are the host names of the server, in addition to the loopback
	// names.
	Hosts []string
	// Log is the log for the operator. Default: no log.
	Log *slog.Logger
	// Registry collects the request metrics. Default: a new registry.
	Registry *prometheus.Registry
	// NewID returns an id for a kernel or a message. Default: random UUIDs.
	NewID func() string
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// Defaults of Options.
const (
	DefaultIdle    = 30 * time.Minute
	DefaultTimeout = 10 * time.Minute
)

// API serves the kernel gateway protocol.
type API struct {
	Options
	ring             *httpapi.Keyring
	handler          http.Handler
	ephemeralKernels ephemeralKernels
	open             connections
	closed           chan struct{}
	closeOnce        sync.Once

	sendTimeout, closeTimeout time.Duration
}

// New returns the API.
func New(o Options) *API {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.LimitRange == (brig.LimitRange{}) {
		o.LimitRange = brig.DefaultLimitRange()
	}
	if o.Default == "" {
		o.Default = Stateful
	}
	if o.Idle == 0 {
		o.Idle = DefaultIdle
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Idle, o.Timeout = min(o.Idle, o.LimitRange.MaxTTL), min(o.Timeout, o.LimitRange.MaxTimeout)
	metrics, err := httpapi.NewMetrics(o.Registry)
	if err != nil {
		o.Log.Warn("kernels: failed to register the HTTP metrics", "error", err)
	}
	d := &API{Options: o, ring: httpapi.NewKeyring(o.Keys), closed: make(chan struct{}), sendTimeout: sendTimeout, closeTimeout: closeTimeout}
	d.ephemeralKernels.kernels, d.open.byTenant, d.open.tenants = map[ephemeralKey]*ephemeralKernel{}, map[string]int{}, map[string]*tenantUsage{}
	d.handler = httpapi.Wrap(o.Log, metrics, httpapi.Guard(o.Hosts, "", d.router()))
	return d
}

// ServeHTTP implements http.Handler.
func (d *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// shutdownTimeout is how long Close waits for the clients to receive the reason. The
// process may end after Close.
const shutdownTimeout = 200 * time.Millisecond

// Close ends the connections and discards the state of the ephemeral kernels.
func (d *API) Close() {
	d.closeOnce.Do(func() {
		close(d.closed)
		d.open.wait(shutdownTimeout)
		d.ephemeralKernels.close()
	})
}

// Matches reports whether a request is for this API.
func Matches(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, "/api")
	first, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	return ok && (rest == "" || rest == "/" || rest[0] == '/' && (first == "kernels" || first == "kernelspecs"))
}

// authenticate returns the proof of r's credential, which is a token in the URL
// or in a header. It ignores browser sessions, because web pages may not use
// this API.
func (d *API) authenticate(r *http.Request) (httpapi.Proof, error) {
	key := r.URL.Query().Get("token")
	if scheme, rest, ok := strings.Cut(r.Header.Get("Authorization"), " "); key == "" && ok && (strings.EqualFold(scheme, "token") || strings.EqualFold(scheme, "bearer")) {
		key = strings.TrimSpace(rest)
	}
	bearer := &http.Request{Header: http.Header{"Authorization": {"Bearer " + key}}, RemoteAddr: r.RemoteAddr}
	proof, err := httpapi.Authenticate(bearer.WithContext(r.Context()), d.ring)
	if brig.KindOf(err) == brig.Unauthenticated {
		return proof, httpapi.WithStatus(http.StatusForbidden, brig.Errorf(brig.Unauthenticated, "Forbidden").
			WithHint("add ?token= with a Brig key to the address, or send the header Authorization: token with it").Because(err))
	}
	return proof, err
}

// failure is an error in Jupyter's format, with the code and field of the Brig
// error.
type failure struct {
	Message string `json:"message"`
	Reason  string `json:"reason"`
	Code    string `json:"code"`
	Field   string `json:"field,omitempty"`
}

// fail responds with err.
func (d *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	httpapi.Log(r, err)
	status, e := httpapi.StatusOf(err), brig.AsError(err)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(httpapi.RetryAfter(err)))
	}
	if err := httpapi.WriteJSON(w, status, failure{Message: e.Message, Reason: e.Hint, Code: e.Kind.Code(), Field: e.Field}); err != nil {
		d.Log.DebugContext(r.Context(), "kernels: answer", "error", err)
	}
}

// errInterrupted is the cause of an interrupt.
var errInterrupted = errors.New("interrupted")
