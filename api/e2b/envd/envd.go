// Package envd serves the data plane of E2B's protocol, what its SDKs find on
// port 49983 of a sandbox, in front of a brig.Service: processes, files and
// what belongs to them. Nothing of it runs in the sandbox.
package envd

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b/envd/filesystempb"
	"github.com/brig-run/brig/api/e2b/envd/processpb"
	"github.com/brig-run/brig/door"
)

// Sandbox is the one that a request is for. The caller has found out whose it
// is: the request's context carries the actor already.
type Sandbox struct {
	// ID names it to the Service.
	ID string
	// Token is what requests have to bring; without one everything is open.
	Token string
	// Env is what GET /envs tells.
	Env map[string]string
	// User and Dir are those of commands that do not say; empty for user, and
	// for the user's home.
	User, Dir string
}

// Metrics is what a sandbox uses of what it has; sizes are in bytes.
type Metrics struct {
	Time              time.Time
	CPUs              float64
	CPUPercent        float64
	Memory, MemoryMax int64
	MemoryCache       int64
	Disk, DiskMax     int64
}

// Options are what New needs.
type Options struct {
	Service brig.Service
	Log     *slog.Logger // may be nil
	// Metrics measures a sandbox; without it GET /metrics is not implemented.
	Metrics func(ctx context.Context, id string) (Metrics, error)
}

// Envd serves the data plane of every sandbox. Its methods may be called from
// several goroutines.
type Envd struct {
	service  brig.Service
	log      *slog.Logger
	metrics  func(ctx context.Context, id string) (Metrics, error)
	mux      *http.ServeMux
	watchers *watchers
}

// largest bounds one message, in bytes. What is typed into a process comes in
// one.
const largest = 32 << 20

// New returns an Envd.
func New(o Options) *Envd {
	e := &Envd{service: o.Service, log: o.Log, metrics: o.Metrics, mux: http.NewServeMux(), watchers: newWatchers()}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	options := []connect.HandlerOption{connect.WithReadMaxBytes(largest), connect.WithCompressMinBytes(1 << 10)}
	e.mux.Handle(processpb.NewProcessHandler(processes{e}, options...))
	e.mux.Handle(filesystempb.NewFilesystemHandler(filesystem{e}, options...))
	e.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	e.mux.HandleFunc("GET /envs", e.envs)
	e.mux.HandleFunc("GET /metrics", e.measure)
	e.mux.HandleFunc("GET /files", e.download)
	e.mux.HandleFunc("POST /files", e.upload)
	e.mux.HandleFunc("POST /files/compose", e.compose)
	e.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "there is no "+r.Method+" "+r.URL.Path)
	})
	return e
}

// Close ends what goes on without a request: the watchers.
func (e *Envd) Close() { e.watchers.close() }

// Serve answers one request for s.
func (e *Envd) Serve(w http.ResponseWriter, r *http.Request, s Sandbox) {
	allowOrigins(w.Header(), r)
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if err := authorize(r, s.Token, time.Now()); err != nil {
		refuse(w, http.StatusUnauthorized, err.Error())
		return
	}
	door.LongBody(w)
	out := newWriter(w)
	e.mux.ServeHTTP(out, withCall(r, s, out))
	if out.finish() {
		// The client has to see a broken connection: only then does it ask
		// whether the sandbox is still there.
		panic(http.ErrAbortHandler) //nolint:forbidigo // the one way to break a connection
	}
}

// allowOrigins lets pages of any origin in: what proves who is calling is
// never a cookie.
func allowOrigins(h http.Header, r *http.Request) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*")
	if r.Method != http.MethodOptions {
		return
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS")
	h.Set("Access-Control-Max-Age", "7200")
	h.Set("Access-Control-Allow-Headers", "*")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked) // "*" leaves Authorization out
		h.Add("Vary", "Access-Control-Request-Headers")
	}
}
