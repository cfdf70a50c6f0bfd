package e2b

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// forwarder forwards requests to the programs that listen on ports of a
// sandbox.
type forwarder struct {
	*env
	tokens    *tokens
	finder    *finder
	transport *http.Transport
}

// dialPauses returns the pauses between attempts to connect to a port. A server
// that was just started may not listen yet.
func dialPauses() []time.Duration {
	return []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond, 0}
}

// newTransport returns the HTTP transport to the ports of sandboxes. Each
// connection serves one request. An idle connection would count as use of the
// sandbox, and connections must not be shared between sandboxes.
func (f *forwarder) newTransport() *http.Transport {
	return &http.Transport{
		DialContext:        f.dial,
		DisableKeepAlives:  true,
		DisableCompression: true, // the body is passed on unchanged
		// This process opened the connection into the sandbox, so there is no
		// server name to verify.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
}

// dial connects to "id:port" as the actor in ctx.
func (f *forwarder) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	id, p, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(p)
	if err != nil {
		return nil, err
	}
	for _, pause := range dialPauses() {
		var conn net.Conn
		conn, err = f.Service.Dial(ctx, id, port)
		if err == nil {
			return httpapi.NewBoundedConn(ctx, conn), nil
		}
		if brig.KindOf(err) != brig.ConnectionFailed {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, err
}

// forward forwards a request to a port of a sandbox.
func (f *forwarder) forward(w http.ResponseWriter, r *http.Request, s *brig.Sandbox, t target) {
	httpapi.AllowOpenBody(r)
	// The program in the sandbox sets its own caching headers.
	for _, name := range []string{"Cache-Control", "X-Content-Type-Options", httpapi.RequestID} {
		w.Header().Del(name)
	}
	f.tokens.shield().Forward(httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { f.rewrite(p, s, t) },
		Transport:     f.transport,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(f.Log.Handler(), slog.LevelDebug),
		ErrorHandler:  func(w http.ResponseWriter, r *http.Request, err error) { f.writeNoPort(w, r, t, err) },
	}, w, r)
}

// rewrite converts the client's request to the request to the sandbox.
func (f *forwarder) rewrite(p *httputil.ProxyRequest, s *brig.Sandbox, t target) {
	out := p.Out
	out.URL.Scheme = "http"
	if slices.Contains(strings.Split(s.Spec.Labels[labelHTTPS], ","), strconv.Itoa(t.port)) {
		out.URL.Scheme = "https"
	}
	out.URL.Host = net.JoinHostPort(t.id, strconv.Itoa(t.port))
	out.URL.RawQuery = p.In.URL.RawQuery // keeps queries that Go cannot parse
	out.Host = p.In.Host
	p.SetXForwarded()
	if mask := s.Spec.Labels[labelMask]; mask != "" {
		out.Host = strings.ReplaceAll(mask, portMark, strconv.Itoa(t.port))
	}
	for _, name := range []string{headerID, headerPort, headerTraffic} {
		out.Header.Del(name)
	}
}

// writeNoPort answers a request whose port could not be reached or did not
// respond.
func (f *forwarder) writeNoPort(w http.ResponseWriter, r *http.Request, t target, err error) {
	if r.Context().Err() != nil {
		httpapi.Abort(w)
		return
	}
	u := unreachableError{SandboxID: t.id, Port: t.port, Code: http.StatusBadGateway}
	switch brig.KindOf(err) {
	case brig.ConnectionFailed:
		u.Message = closedPort
	case brig.NotFound, brig.FailedPrecondition:
		f.writeGone(w, r, t)
		return
	case brig.Internal: // not a server error: the response was not HTTP or ended early
		f.Log.DebugContext(r.Context(), "e2b: port", "sandbox", t.id, "port", t.port, "error", err)
		u.Message = "The sandbox is running but what listens on the port did not answer"
	default:
		f.fail(w, r, err)
		return
	}
	if s, err := f.finder.resolve(r, t.id, brig.ActorFrom(r.Context()).Visitor); err == nil && (s == nil || s.State == brig.Paused) {
		f.writeGone(w, r, t)
		return
	}
	f.writeUnreachable(w, r, u)
}
