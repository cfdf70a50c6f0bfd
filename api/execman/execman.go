// Package execman is the executor manager API for RAGFlow clients. POST /run
// runs a program by calling its main, and GET /healthz reports that the server
// is running. The protocol has no authentication. So the API has its own
// address, accepts only the configured client networks, and acts as one actor.
package execman

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// Service is the part of brig.Service that the API uses.
type Service interface {
	Run(ctx context.Context, p brig.Program, sio brig.IO) (*brig.Outcome, error)
}

// Options configure the API. Service and Actor are required.
type Options struct {
	Service Service
	// Actor is the actor of every request.
	Actor brig.Actor
	// Allow lists the networks of allowed clients. Default: the loopback
	// addresses.
	Allow []netip.Prefix
	// Hosts are the host names of the server, in addition to the loopback names
	// and RAGFlow's own name, "sandbox-executor-manager".
	Hosts []string
	// Pool limits the concurrent programs of a language. Default: 10.
	Pool int
	// Queue is how long a program waits for a free slot in the pool. Default:
	// 10 seconds.
	Queue time.Duration
	// Timeout limits the run time of a program. Default: 10 seconds.
	Timeout time.Duration
	// Limits are the resource limits of every program.
	Limits brig.Limits
	// Images maps languages to images. Default: the images of the Service.
	Images map[brig.Language]string
	// Egress are the egress rules of programs. Default: no connections.
	Egress brig.Egress
	// Server is this server's own name in Via headers. The API rejects a
	// program that has already passed through this server, which happens if a
	// provider's endpoint leads back to it.
	Server string
	// Log is the log for the operator. Default: no log.
	Log *slog.Logger
	// Registry collects the request metrics. Default: a new registry.
	Registry *prometheus.Registry
}

// Defaults of Options.
const (
	DefaultPool    = 10
	DefaultTimeout = 10 * time.Second
	queueTimeout   = 10 * time.Second
)

// grace is how long a program may take to end after the request to end at its
// timeout. After that, the manager kills the program.
const grace = 5 * time.Second

// hostName is the manager's host name in RAGFlow deployments.
const hostName = "sandbox-executor-manager"

// API serves the executor manager API.
type API struct {
	Options
	slots   map[brig.Language]chan struct{}
	handler http.Handler
}

// New returns the API.
func New(o Options) *API {
	if o.Pool == 0 {
		o.Pool = DefaultPool
	}
	if o.Queue == 0 {
		o.Queue = queueTimeout
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
	metrics, err := httpapi.NewMetrics(o.Registry)
	if err != nil {
		o.Log.Warn("execman: failed to register the HTTP metrics", "error", err)
	}
	d := &API{Options: o, slots: map[brig.Language]chan struct{}{
		brig.Python: make(chan struct{}, o.Pool), brig.JavaScript: make(chan struct{}, o.Pool),
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", d.serveHealth)
	mux.HandleFunc("GET /healthz", d.serveHealth)
	mux.HandleFunc("POST /run", d.serveRun)
	routed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := mux.Handler(r)
		httpapi.RecordRoute(r, pattern)
		mux.ServeHTTP(w, r)
	})
	d.handler = httpapi.Wrap(o.Log, metrics, d.admit(httpapi.Guard(append([]string{hostName}, o.Hosts...), "", routed)))
	return d
}

// ServeHTTP implements http.Handler.
func (d *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// admit accepts only requests from allowed addresses.
func (d *API) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ap, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !containsAddress(d.Allow, ap.Addr()) {
			httpapi.Fail(w, r, brig.Errorf(brig.PermissionDenied, "this address is not allowed here").
				WithHint("have the operator add it to execman.allow"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// containsAddress reports whether list contains an address.
func containsAddress(list []netip.Prefix, addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, p := range list {
		if p.Contains(addr) {
			return true
		}
	}
	return len(list) == 0 && addr.IsLoopback()
}

func (d *API) serveHealth(w http.ResponseWriter, r *http.Request) {
	if d.Server != "" {
		w.Header().Set("Via", brig.ViaFrom(r.Context(), d.Server))
	}
	d.writeResult(w, r, http.StatusOK, map[string]string{"status": "ok"})
}

func (d *API) writeResult(w http.ResponseWriter, r *http.Request, status int, v any) {
	if err := httpapi.WriteJSON(w, status, v); err != nil {
		d.Log.DebugContext(r.Context(), "answer", "error", err)
	}
}

// viaHeader returns the value of the request's Via headers.
func viaHeader(r *http.Request) string { return strings.Join(r.Header.Values("Via"), ", ") }

// loopResult returns the response to a program that has already passed through
// this server. If the program ran, it would wait for itself until its timeout.
func loopResult() *v1.ExecmanResult {
	const message = "the program came back to this server: a provider's endpoint is this server's own executor manager API, or leads to it; " +
		"set it to another executor manager, or activate another provider"
	return rejectedResult(v1.ExecmanRefused, v1.ExecmanUnforeseen, message)
}

func (d *API) serveRun(w http.ResponseWriter, r *http.Request) {
	if brig.IsForwardingLoop(viaHeader(r), d.Server) {
		d.writeResult(w, r, http.StatusOK, loopResult())
		return
	}
	httpapi.AllowBody(r)
	r = r.WithContext(brig.WithActor(r.Context(), d.Actor))
	err := httpapi.LeaseOf(r.Context()).Begin(d.Actor)
	if err == nil {
		err = httpapi.Check(r, d.Service, "", brig.OpRun)
		if err != nil { // in the protocol's format, a rejection is a result
			httpapi.Log(r, err)
			if result := errorResult(err); result != nil {
				d.writeResult(w, r, http.StatusOK, result)
				return
			}
		}
	}
	var body []byte
	if err == nil {
		body, err = httpapi.ReadDocument(w, r, httpapi.MaxBody)
	}
	if err != nil {
		httpapi.Fail(w, r, err)
		return
	}
	p, invalid := decode(body)
	if invalid != nil {
		d.writeResult(w, r, http.StatusUnprocessableEntity, invalid)
		return
	}
	p.Timeout, p.Grace, p.Limits, p.Image, p.Egress = d.Timeout, grace, d.Limits, d.Images[p.Language], d.Egress
	result, err := d.execute(r, p)
	if err != nil {
		httpapi.Log(r, err)
		if result = errorResult(err); result == nil {
			httpapi.Fail(w, r, err) // the client has disconnected
			return
		}
	}
	d.writeResult(w, r, http.StatusOK, result)
}

// execute waits for a free slot and runs a program.
func (d *API) execute(r *http.Request, p brig.Program) (*v1.ExecmanResult, error) {
	timer := time.NewTimer(d.Queue)
	defer timer.Stop()
	select {
	case d.slots[p.Language] <- struct{}{}:
		defer func() { <-d.slots[p.Language] }()
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	case <-timer.C:
		return busyResult(), nil
	}
	o, err := d.Service.Run(r.Context(), p, brig.IO{})
	if err != nil {
		return nil, err
	}
	return toResult(p.Language, o), nil
}
