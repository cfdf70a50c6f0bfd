// Package kernels is the door of a Jupyter kernel gateway, as smolagents'
// container executors know it: kernelspecs, kernels, and channels by WebSocket.
//
// A kernel of the spec python3 is a sandbox with an interpreter that keeps its
// variables. One of the spec python3-ephemeral has a fresh sandbox for every
// piece of code: what is left of one for the next is a document of variables,
// functions, classes and imports, which this door keeps and never looks into.
// Both say the same to their clients.
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
	"github.com/brig-run/brig/door"
)

// Service is what the door needs of a brig.Service.
type Service interface {
	Create(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error)
	Get(ctx context.Context, name string) (*brig.Sandbox, error)
	List(ctx context.Context, o brig.ListOptions) (*brig.Page, error)
	Remove(ctx context.Context, name string) error
	Run(ctx context.Context, p brig.Program, sio brig.IO) (*brig.Outcome, error)
	Contexts(ctx context.Context, name string) ([]*brig.CodeContext, error)
	RunCode(ctx context.Context, name string, c brig.Code, on func(brig.CodeEvent) error) (*brig.CodeResult, error)
	InterruptContext(ctx context.Context, name, id string) error
	RestartContext(ctx context.Context, name, id string) (*brig.CodeContext, error)
	// Visit lets a call of one of brig.DoorOps in, and does it.
	Visit(ctx context.Context, op brig.Op, name string, do func(brig.Tenant) error) error
}

// Options are what the door is made of. Service and Keys are needed.
type Options struct {
	Service Service
	Keys    door.Keys
	// Default is the spec of kernels that are asked for without one: Stateful
	// or Ephemeral. Default Stateful.
	Default string
	// Image is what kernels are made from. Default the Service's own.
	Image string
	// Egress says where kernels may connect to. Default nowhere.
	Egress brig.Egress
	// Idle is how long a kernel lives without being used. Default 30 min.
	Idle time.Duration
	// Timeout bounds a piece of code. Default 10 min.
	Timeout time.Duration
	// Bounds are what the Service allows. Default: brig.DefaultBounds.
	Bounds brig.Bounds
	// Hosts are the names by which clients may know the server.
	Hosts []string
	// Log is for the operator. Default: none.
	Log *slog.Logger
	// Registry collects the metrics of the requests. Default: a new one.
	Registry *prometheus.Registry
	// NewID names kernels and messages. Default: random UUIDs.
	NewID func() string
	// Now is the time. Default: the machine's.
	Now func() time.Time
}

// The defaults of Options.
const (
	DefaultIdle    = 30 * time.Minute
	DefaultTimeout = 10 * time.Minute
)

// Door serves the protocol.
type Door struct {
	Options
	ring      *door.Keyring
	handler   http.Handler
	notebooks notebooks
	open      connections
	closed    chan struct{}
	closeOnce sync.Once

	sendTimeout time.Duration
}

// New returns the door.
func New(o Options) *Door {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Bounds == (brig.Bounds{}) {
		o.Bounds = brig.DefaultBounds()
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
	o.Idle, o.Timeout = min(o.Idle, o.Bounds.MaxTTL), min(o.Timeout, o.Bounds.MaxTimeout)
	metrics, err := door.NewMetrics(o.Registry)
	if err != nil {
		o.Log.Warn("kernels: HTTP is not measured", "error", err)
	}
	d := &Door{Options: o, ring: door.NewKeyring(o.Keys), closed: make(chan struct{}), sendTimeout: sendTimeout}
	d.notebooks.by, d.open.by, d.open.tenants = map[notebookKey]*notebook{}, map[string]int{}, map[string]*traffic{}
	d.handler = door.Wrap(o.Log, metrics, door.Guard(o.Hosts, "", d.router()))
	return d
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// Close ends the connections, and forgets what ephemeral kernels have left.
func (d *Door) Close() {
	d.closeOnce.Do(func() {
		close(d.closed)
		d.notebooks.close()
	})
}

// Wants reports whether a request is for this door.
func Wants(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, "/api")
	first, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	return ok && (rest == "" || rest == "/" || rest[0] == '/' && (first == "kernels" || first == "kernelspecs"))
}

// authenticate returns what the sender of r has shown: a token in the address
// or a header. A browser's session is none: pages have no business here.
func (d *Door) authenticate(r *http.Request) (door.Proof, error) {
	key := r.URL.Query().Get("token")
	if scheme, rest, ok := strings.Cut(r.Header.Get("Authorization"), " "); key == "" && ok && (strings.EqualFold(scheme, "token") || strings.EqualFold(scheme, "bearer")) {
		key = strings.TrimSpace(rest)
	}
	shown := &http.Request{Header: http.Header{"Authorization": {"Bearer " + key}}, RemoteAddr: r.RemoteAddr}
	proof, err := door.Authenticate(shown.WithContext(r.Context()), d.ring)
	if brig.KindOf(err) == brig.Unauthenticated {
		return proof, door.WithStatus(http.StatusForbidden, brig.Errorf(brig.Unauthenticated, "Forbidden").
			WithHint("add ?token= with a Brig key to the address, or send the header Authorization: token with it").Because(err))
	}
	return proof, err
}

// trouble is an error as Jupyter's servers tell it, with the code of ours.
type trouble struct {
	Message string `json:"message"`
	Reason  string `json:"reason"`
	Code    string `json:"code"`
	Field   string `json:"field,omitempty"`
}

// fail answers with err.
func (d *Door) fail(w http.ResponseWriter, r *http.Request, err error) {
	door.Log(r, err)
	status, e := door.StatusOf(err), brig.AsError(err)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(door.RetryAfter(err)))
	}
	if err := door.WriteJSON(w, status, trouble{Message: e.Message, Reason: e.Hint, Code: e.Kind.Code(), Field: e.Field}); err != nil {
		d.Log.DebugContext(r.Context(), "kernels: answer", "error", err)
	}
}

// errInterrupted ends what somebody has interrupted.
var errInterrupted = errors.New("interrupted")
