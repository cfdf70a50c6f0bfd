package egress

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/brig-run/brig"
)

// exchange is an allowed request and its response.
type exchange struct {
	n         *inspection
	in        *http.Request // as received
	requested brig.Request
	rule      int
	body      guestBody // of the request; nil: none

	bound     []Secret // the secrets that the host may receive
	grants    []boundSecret
	pairs     []swap          // basic credentials that were sent, and the original ones
	exclusive bool            // at least one of them is exclusive
	scrub     *scrubber       // removes values from the response; nil: no values were sent
	shared    *sharedScrubber // the shared base of scrub; nil: none
	growth    int64           // bytes that values add to the header
	charged   int64           // in addition to costOfRequest

	mu       sync.Mutex
	inserted []string // the names of the secrets whose values were inserted
	exposed  string   // the name of a secret that was not inserted, because the request is unencrypted
	broken   atomic.Bool
}

// ServeHTTP checks a request, and sends it if it is allowed.
func (n *inspection) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !n.begin() {
		return
	}
	defer n.serving.Done()
	// The request and the response are sent independently of each other: net/http
	// would otherwise wait for the guest's body before it sends a refusal. HTTP/2
	// always works like this, and EnableFullDuplex returns an error for it.
	_ = http.NewResponseController(w).EnableFullDuplex()
	secrets := n.currentSecrets()
	cost := costOfRequest(r, !n.upstream.lines.Load(), n.searchesResponses(secrets))
	if !n.requestTracker.beginServing(cost) {
		n.reportRefused(reasonNoMemory)
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Connection", "close") // the request's body is not read
		http.Error(w, "brig: "+reasonNoMemory+": make fewer requests at once", http.StatusServiceUnavailable)
		if n.gate != nil {
			n.gate.endAfterResponse()
		}
		return
	}
	defer n.requestTracker.endServing(cost)
	escaped, methods, refused := n.check(r)
	x := &exchange{n: n, in: r, bound: n.secretsForHost(secrets), requested: brig.Request{Method: r.Method, Path: r.URL.Path}, rule: -1}
	defer x.release()
	if r.Body != nil && r.Body != http.NoBody {
		x.body = newGuestBody(w, r)
		defer func() { _ = x.body.Close() }()
	}
	if refused == nil {
		refused = x.checkReadings(escaped, methods)
	}
	if refused == nil {
		refused = x.serve(w)
	}
	if refused != nil {
		x.report(refused.reason)
		respondError(w, refused.status, fmt.Sprintf("this request to %s is not made: %s", n.host, refused.reason))
	}
	if x.body != nil {
		_ = http.NewResponseController(w).Flush() // the guest may send no more before it has the response
		if !x.body.finish() {
			n.gate.endAfterResponse()
		}
	}
}

// release releases the memory that the request used beyond costOfRequest.
func (x *exchange) release() {
	x.n.budget.release(x.charged)
	if x.shared != nil {
		x.n.valuesSent.releaseScrubber(x.n.budget, x.shared)
	}
}

// serve sends the request, unless its secrets forbid it.
func (x *exchange) serve(w http.ResponseWriter) *refusal {
	out := x.in.Clone(x.in.Context())
	if x.body != nil {
		out.Body = x.body
	}
	for name := range out.Header {
		if strings.HasPrefix(name, "Proxy-") {
			delete(out.Header, name)
		}
	}
	if refused := x.checkUpgrade(out); refused != nil {
		return refused
	}
	if refused := x.substitute(out); refused != nil {
		return refused
	}
	sent := func() {}
	if x.hasSubstitutedBody(out) {
		// The names of the inserted values are known only when the body has
		// ended. The response may take unlimited time.
		sent = sync.OnceFunc(func() { x.report(x.checkCleartext()) })
		defer sent()
	} else {
		x.report("")
	}
	trailer := x.send(out, sent)
	if o, ok := out.Body.(*outgoingBody); ok {
		out = out.WithContext(httptrace.WithClientTrace(out.Context(), &httptrace.ClientTrace{GotConn: o.onConnection}))
		defer o.releaseConnection()
	}

	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = x.n.scheme(), x.n.authorityName(), x.n.authorityName()
			p.Out.URL.RawQuery, p.Out.URL.ForceQuery = out.URL.RawQuery, out.URL.ForceQuery
			p.Out.Trailer = trailer
			if p.Out.Body != nil {
				p.Out.Body = out.Body // the proxy's wrapper does not pass on Close
			}
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v := out.Header[name]; v != nil {
					p.Out.Header[name] = v
				}
			}
		},
		Transport:      x.n.upstream,
		FlushInterval:  -1,
		ModifyResponse: x.prepareResponse,
		ErrorHandler:   x.handleError,
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	proxy.ServeHTTP(&responseWriter{ResponseWriter: w, x: x}, out)
	return nil
}

// checkUpgrade allows only an upgrade to WebSocket, because unchecked requests could pass over another
// protocol.
func (x *exchange) checkUpgrade(out *http.Request) *refusal {
	if out.Header["Upgrade"] == nil {
		return nil
	}
	if len(out.Header["Upgrade"]) != 1 || !strings.EqualFold(out.Header.Get("Upgrade"), "websocket") ||
		out.Method != http.MethodGet || out.ProtoMajor != 1 || out.Header.Get("Sec-Websocket-Key") == "" {
		out.Header.Del("Upgrade") // as RFC 9110 allows
		return nil
	}
	if out.ContentLength != 0 {
		return &refusal{http.StatusBadRequest, "it has a body, and leaves HTTP"}
	}
	return nil
}

// handleError reports to the guest that the host has not responded.
func (x *exchange) handleError(w http.ResponseWriter, _ *http.Request, err error) {
	var handshake *handshakeError
	if errors.As(err, &handshake) {
		x.n.report(Event{At: x.n.now(), Kind: Connect, Host: x.n.host, Port: x.n.port, Rule: -1, Why: describeError(err)})
	}
	switch {
	case brig.KindOf(err) == brig.PolicyBlocked:
		respondError(w, http.StatusForbidden, fmt.Sprintf("the request to %s is not made: %s", x.n.host, describeError(err)))
	case x.broken.Load():
		respondError(w, http.StatusBadRequest, "the body of the request cannot be read")
	default:
		respondError(w, http.StatusBadGateway, fmt.Sprintf("there is no answer from %s: %s", x.n.host, describeError(err)))
	}
}

// respondError sends the guest an error response instead of the host's.
func respondError(w http.ResponseWriter, status int, text string) {
	text = "brig: " + text + " (the sandbox's egress policy)\n"
	clear(w.Header())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.Itoa(len(text))) // the guest has all of it before the request has ended
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// recordInserted records that a secret's value was inserted into the request.
func (x *exchange) recordInserted(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !slices.Contains(x.inserted, name) {
		x.inserted = append(x.inserted, name)
	}
	if !x.n.secure && slices.ContainsFunc(x.grants, func(g boundSecret) bool { return g.Name == name && !g.Plain }) {
		x.exposed = name
	}
}

// checkCleartext returns the reason why the request may not be sent in clear text.
func (x *exchange) checkCleartext() (reason string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.exposed == "" {
		return ""
	}
	return "the secret " + x.exposed + " is for https only"
}

// report reports the outcome of the request. reason is empty if the request is
// sent.
func (x *exchange) report(reason string) {
	x.mu.Lock()
	used := slices.Clone(x.inserted)
	x.mu.Unlock()
	if reason != "" {
		used = nil // nothing was sent
	}
	x.n.report(Event{
		At: x.n.now(), Kind: Request, Host: x.n.host, Port: x.n.port,
		Method: clip(x.requested.Method), Path: clip(x.requested.Path),
		Allowed: reason == "", Rule: x.rule, Why: reason, Secrets: used,
	})
}

// reportRefused reports a request that was refused before it was checked.
func (n *inspection) reportRefused(reason string) {
	n.report(Event{At: n.now(), Kind: Request, Host: n.host, Port: n.port, Rule: -1, Why: reason})
}

// begin counts a request. It reports false if the inspection has ended.
func (n *inspection) begin() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.ended {
		n.serving.Add(1)
	}
	return !n.ended
}

// wait rejects new requests, and returns when no request is being served.
func (n *inspection) wait() {
	n.mu.Lock()
	n.ended = true
	n.mu.Unlock()
	n.serving.Wait()
}
