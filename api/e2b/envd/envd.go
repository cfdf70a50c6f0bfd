// Package envd serves the data plane of the E2B API, which E2B's SDKs use on
// port 49983 of a sandbox, on top of a brig.Service. It covers processes, files
// and related calls. All of its code runs in the server, not in the sandbox.
package envd

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b/envd/filesystempb"
	"github.com/brig-run/brig/api/e2b/envd/processpb"
)

// Sandbox is the sandbox of a request. The caller has already checked its
// owner, and the request's context contains the actor.
type Sandbox struct {
	// ID is the sandbox's id in the Service.
	ID string
	// Token is the token that requests must carry. If it is empty, requests
	// need no token.
	Token string
	// Env is the response to GET /envs.
	Env map[string]string
	// User and Dir are the default user and directory of commands. If they are
	// empty, commands run as the user "user" in the home directory of the user.
	User, Dir string
}

// Metrics is the resource usage of a sandbox. Sizes are in bytes.
type Metrics struct {
	Time              time.Time
	CPUs              float64
	CPUPercent        float64
	Memory, MemoryMax int64
	MemoryCache       int64
	Disk, DiskMax     int64
}

// Service is the part of brig.Service that envd uses.
type Service interface {
	brig.SandboxService
	brig.GuestService
}

// Options configure New.
type Options struct {
	Service Service
	Log     *slog.Logger // may be nil
	// Metrics returns the resource usage of a sandbox. If it is nil, GET
	// /metrics responds with Unimplemented.
	Metrics func(ctx context.Context, id string) (Metrics, error)
	// Clock determines whether signed URLs have expired. Default: time.Now.
	Clock brig.Clock
}

// Envd serves the data plane of every sandbox. Its methods are safe for
// concurrent use.
type Envd struct {
	service  Service
	log      *slog.Logger
	metrics  func(ctx context.Context, id string) (Metrics, error)
	clock    brig.Clock
	mux      *http.ServeMux
	watchers *watchers
	errors   *connect.ErrorWriter
}

// New returns an Envd.
func New(o Options) *Envd {
	e := &Envd{service: o.Service, log: o.Log, metrics: o.Metrics, clock: o.Clock, mux: http.NewServeMux(), watchers: newWatchers()}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.clock == nil {
		e.clock = brig.WallClock(time.Now)
	}
	e.errors = connect.NewErrorWriter(options()...)
	e.mux.Handle(processpb.NewProcessHandler(processes{e}, options()...))
	e.mux.Handle(filesystempb.NewFilesystemHandler(filesystem{e}, options()...))
	e.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	e.mux.HandleFunc("GET /envs", e.envs)
	e.mux.HandleFunc("GET /metrics", e.measure)
	e.mux.HandleFunc("GET /files", e.download)
	e.mux.HandleFunc("POST "+filesPath, e.upload)
	e.mux.HandleFunc("POST "+composePath, e.compose)
	e.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "there is no "+r.Method+" "+r.URL.Path)
	})
	return e
}

// Close ends the watchers, which outlive their requests.
func (e *Envd) Close() { e.watchers.close() }

// Serve answers one request for s.
func (e *Envd) Serve(w http.ResponseWriter, r *http.Request, s Sandbox) {
	allowOrigins(w.Header(), r)
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if err := authorize(r, s.Token, e.clock); err != nil {
		writeError(w, http.StatusUnauthorized, err.Error())
		return
	}
	out := newWriter(w)
	r = withCall(r, s, &foundAccounts{files: e.service.Files(s.ID), causedByEnd: e.causedByEnd}, out)
	if err := e.admit(r); err != nil {
		e.deny(out, r, err)
	} else {
		e.mux.ServeHTTP(out, r)
	}
	if out.finish() {
		// The client must see an aborted connection, because only then does it
		// check whether the sandbox still exists.
		panic(http.ErrAbortHandler) //nolint:forbidigo // the one way to break a connection
	}
}

// allowOrigins allows pages of every origin, because the credential of a
// request is never a cookie.
func allowOrigins(h http.Header, r *http.Request) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*")
	if r.Method != http.MethodOptions {
		return
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS")
	h.Set("Access-Control-Max-Age", "7200")
	h.Set("Access-Control-Allow-Headers", "*")
	if headers := r.Header.Get("Access-Control-Request-Headers"); headers != "" {
		h.Set("Access-Control-Allow-Headers", headers) // "*" does not include Authorization
		h.Add("Vary", "Access-Control-Request-Headers")
	}
}

// envs handles GET /envs.
func (e *Envd) envs(w http.ResponseWriter, r *http.Request) {
	env := callOf(r.Context()).box.Env
	if env == nil {
		env = map[string]string{}
	}
	answer(w, http.StatusOK, env)
}

// measure handles GET /metrics.
func (e *Envd) measure(w http.ResponseWriter, r *http.Request) {
	if e.metrics == nil {
		e.fail(w, r, "", brig.Errorf(brig.Unimplemented, "there are no metrics"))
		return
	}
	m, err := e.metrics(r.Context(), callOf(r.Context()).box.ID)
	if err != nil {
		e.fail(w, r, "", err)
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"ts": m.Time.Unix(), "cpu_count": int(math.Ceil(m.CPUs)), "cpu_used_pct": m.CPUPercent,
		"mem_total": m.MemoryMax, "mem_used": m.Memory, "mem_cache": m.MemoryCache,
		"mem_total_mib": m.MemoryMax / brig.MiB, "mem_used_mib": m.Memory / brig.MiB,
		"disk_used": m.Disk, "disk_total": m.DiskMax,
	})
}
