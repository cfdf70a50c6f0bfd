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
	"github.com/brig-run/brig/door"
)

// dialPauses are the pauses between attempts to reach a port: a server that
// was just started may be about to listen.
func dialPauses() []time.Duration {
	return []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond, 0}
}

// newTransport returns what speaks HTTP with the ports of sandboxes. A
// connection serves one request: one that is kept would count as use of the
// sandbox, and nobody is ever to get another's.
func (d *Door) newTransport() *http.Transport {
	return &http.Transport{
		DialContext:        d.dial,
		DisableKeepAlives:  true,
		DisableCompression: true, // what is said is passed on as it is
		// The other end is in the sandbox, at the end of a connection that
		// this process has made: there is nobody whose name could be checked.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
}

// dial connects to "id:port" as the actor in ctx.
func (d *Door) dial(ctx context.Context, _, addr string) (net.Conn, error) {
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
		conn, err = d.Service.Dial(ctx, id, port)
		if err == nil {
			return conn, nil
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

// forward passes a request on to a port of a sandbox.
func (d *Door) forward(w http.ResponseWriter, r *http.Request, s *brig.Sandbox, t target) {
	door.LongBody(w)
	if token := r.Header.Get(headerToken); token != "" && equal(token, d.token(t.id, d.sourceIn(r))) {
		// It is ours, and no business of what listens there. Another one is the
		// client's own affair.
		r.Header.Del(headerToken)
	}
	// What is said about caching is the sandbox's own affair.
	for _, name := range []string{"Cache-Control", "X-Content-Type-Options", door.RequestID} {
		w.Header().Del(name)
	}
	proxy := httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { rewrite(p, s, t) },
		Transport: d.transport,
		ModifyResponse: func(r *http.Response) error {
			keepCookies(r.Header)
			return nil
		},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(d.Log.Handler(), slog.LevelDebug),
		ErrorHandler:  func(w http.ResponseWriter, r *http.Request, err error) { d.unreached(w, r, t, err) },
	}
	proxy.ServeHTTP(w, r)
}

// rewrite makes of a client's request the sandbox's.
func rewrite(p *httputil.ProxyRequest, s *brig.Sandbox, t target) {
	out := p.Out
	out.URL.Scheme = "http"
	if slices.Contains(strings.Split(s.Spec.Labels[labelHTTPS], ","), strconv.Itoa(t.port)) {
		out.URL.Scheme = "https"
	}
	out.URL.Host = net.JoinHostPort(t.id, strconv.Itoa(t.port))
	out.URL.RawQuery = p.In.URL.RawQuery // also what we could not read
	out.Host = p.In.Host
	p.SetXForwarded()
	if mask := s.Spec.Labels[labelMask]; mask != "" {
		out.Host = strings.ReplaceAll(mask, portMark, strconv.Itoa(t.port))
	}
	for _, name := range []string{headerID, headerPort, headerTraffic} {
		out.Header.Del(name)
	}
}

// keepCookies makes every cookie that a server in a sandbox sets one of its own
// host: one for the whole domain would be shown to every other sandbox.
func keepCookies(h http.Header) {
	cookies := h.Values("Set-Cookie")
	for i, c := range cookies {
		parts := strings.Split(c, ";")
		kept := slices.DeleteFunc(parts[1:], func(part string) bool {
			name, _, _ := strings.Cut(part, "=")
			return strings.EqualFold(strings.TrimSpace(name), "domain")
		})
		cookies[i] = strings.Join(append(parts[:1], kept...), ";")
	}
}

// unreached answers when a port did not.
func (d *Door) unreached(w http.ResponseWriter, r *http.Request, t target, err error) {
	if r.Context().Err() != nil {
		door.Abort(w)
		return
	}
	u := unreachable{SandboxID: t.id, Port: t.port, Code: http.StatusBadGateway}
	switch brig.KindOf(err) {
	case brig.ConnectionFailed:
		u.Message = closedPort
	case brig.NotFound, brig.FailedPrecondition:
		d.gone(w, r, t)
		return
	case brig.Internal: // no error of ours: what came was not HTTP, or ended
		d.Log.DebugContext(r.Context(), "e2b: port", "sandbox", t.id, "port", t.port, "error", err)
		u.Message = "The sandbox is running but what listens on the port did not answer"
	default:
		d.fail(w, r, err)
		return
	}
	if _, s, err := d.enter(r, t.id); err == nil && s == nil {
		d.gone(w, r, t)
		return
	}
	d.refuse(w, r, u)
}
