// Package execman is the door of an executor manager, as RAGFlow's clients know
// it: POST /run runs a program of which main is called, GET /healthz says that
// somebody is there. The protocol has no authentication, so the door has an
// address of its own, listens to the addresses that it is told of, and acts for
// one actor.
package execman

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

// Service is what the door needs of a brig.Service.
type Service interface {
	Run(ctx context.Context, p brig.Program, sio brig.IO) (*brig.Outcome, error)
}

// Options are what the door is made of. Service and Actor are needed.
type Options struct {
	Service Service
	// Actor is who runs everything that comes in here.
	Actor brig.Actor
	// Allow are the networks that are let in. Default: this machine.
	Allow []netip.Prefix
	// Hosts are the names by which clients may know the server, beside the
	// loopback ones and RAGFlow's own, "sandbox-executor-manager".
	Hosts []string
	// Pool is how many programs of a language run at once. Default 10.
	Pool int
	// Queue is how long one more waits. Default 10 s.
	Queue time.Duration
	// Timeout bounds a program. Default 10 s.
	Timeout time.Duration
	// Limits are those of every program.
	Limits brig.Limits
	// Images are those for a language. Default the Service's own.
	Images map[brig.Language]string
	// Log is for the operator. Default: none.
	Log *slog.Logger
	// Registry collects the metrics of the requests. Default: a new one.
	Registry *prometheus.Registry
}

// The defaults of Options.
const (
	DefaultPool    = 10
	DefaultTimeout = 10 * time.Second
	queueTime      = 10 * time.Second
)

// grace is how long a program whose time is over has to end when it is asked
// to, before the manager itself ends it.
const grace = 5 * time.Second

// hostName is what the manager's host is called where RAGFlow is deployed.
const hostName = "sandbox-executor-manager"

// Door serves the protocol.
type Door struct {
	Options
	seats   map[brig.Language]chan struct{}
	handler http.Handler
}

// New returns the door.
func New(o Options) *Door {
	if o.Pool == 0 {
		o.Pool = DefaultPool
	}
	if o.Queue == 0 {
		o.Queue = queueTime
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	metrics, err := door.NewMetrics(o.Registry)
	if err != nil {
		o.Log.Warn("execman: HTTP is not measured", "error", err)
	}
	d := &Door{Options: o, seats: map[brig.Language]chan struct{}{
		brig.Python: make(chan struct{}, o.Pool), brig.JavaScript: make(chan struct{}, o.Pool),
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", d.health)
	mux.HandleFunc("GET /healthz", d.health)
	mux.HandleFunc("POST /run", d.run)
	routed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := mux.Handler(r)
		door.Route(r, pattern)
		mux.ServeHTTP(w, r)
	})
	d.handler = door.Wrap(o.Log, metrics, d.admit(door.Guard(append([]string{hostName}, o.Hosts...), "", routed)))
	return d
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// admit lets in whoever comes from an address that is allowed.
func (d *Door) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ap, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !allowed(d.Allow, ap.Addr()) {
			door.Fail(w, r, brig.Errorf(brig.PermissionDenied, "this address is not allowed here").
				WithHint("have the operator add it to execman.allow"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowed reports whether an address is let in.
func allowed(list []netip.Prefix, addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, p := range list {
		if p.Contains(addr) {
			return true
		}
	}
	return len(list) == 0 && addr.IsLoopback()
}

func (d *Door) health(w http.ResponseWriter, r *http.Request) {
	d.answer(w, r, http.StatusOK, map[string]string{"status": "ok"})
}

func (d *Door) answer(w http.ResponseWriter, r *http.Request, status int, v any) {
	if err := door.WriteJSON(w, status, v); err != nil {
		d.Log.DebugContext(r.Context(), "answer", "error", err)
	}
}

func (d *Door) run(w http.ResponseWriter, r *http.Request) {
	door.AllowBody(w, r)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, door.MaxBody))
	if err != nil {
		door.Fail(w, r, door.BodyError(err))
		return
	}
	p, wrong := decode(body)
	if wrong != nil {
		d.answer(w, r, http.StatusUnprocessableEntity, wrong)
		return
	}
	p.Timeout, p.Grace, p.Limits, p.Image = d.Timeout, grace, d.Limits, d.Images[p.Language]
	result, err := d.perform(r, p)
	if err != nil {
		door.Log(r, err)
		if result = failure(err); result == nil {
			door.Fail(w, r, err) // nobody listens any more
			return
		}
	}
	d.answer(w, r, http.StatusOK, result)
}

// perform runs a program when its turn has come.
func (d *Door) perform(r *http.Request, p brig.Program) (*wire.ExecmanResult, error) {
	timer := time.NewTimer(d.Queue)
	defer timer.Stop()
	select {
	case d.seats[p.Language] <- struct{}{}:
		defer func() { <-d.seats[p.Language] }()
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	case <-timer.C:
		return busy(), nil
	}
	o, err := d.Service.Run(brig.WithActor(r.Context(), d.Actor), p, brig.IO{})
	if err != nil {
		return nil, err
	}
	return result(p.Language, o), nil
}
