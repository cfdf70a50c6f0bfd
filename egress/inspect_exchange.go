package egress

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/brig-run/brig"
)

// exchange is a request that may be made, and what comes back.
type exchange struct {
	n     *inspection
	in    *http.Request // as it came
	asked brig.Request
	rule  int

	grants []grant
	pairs  []swap    // what basic credentials became, and what they were
	scrub  *scrubber // takes values out of what comes back; nil: there are none

	mu     sync.Mutex
	used   []string // the names of the secrets whose values were put in
	bare   string   // of one that may not go in the clear, and would have
	broken atomic.Bool
}

// ServeHTTP judges a request and makes it.
func (n *inspection) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !n.begin() {
		return
	}
	defer n.serving.Done()
	asked, no := n.check(r)
	x := &exchange{n: n, in: r, asked: brig.Request{Method: r.Method, Path: r.URL.Path}, rule: -1}
	if no == nil {
		x.asked = asked[0]
		x.rule, no = n.decide(asked)
	}
	if no == nil {
		no = x.serve(w)
	}
	if no != nil {
		x.report(no.why)
		tell(w, no.status, fmt.Sprintf("this request to %s is not made: %s", n.host, no.why))
	}
}

// serve makes the request, unless its secrets are a reason not to.
func (x *exchange) serve(w http.ResponseWriter) *refusal {
	out := x.in.Clone(x.in.Context())
	for name := range out.Header {
		if strings.HasPrefix(name, "Proxy-") {
			delete(out.Header, name)
		}
	}
	if no := x.upgrade(out); no != nil {
		return no
	}
	if no := x.broker(out); no != nil {
		return no
	}
	sent := func() {}
	if x.searched(out) {
		// Only when the body has ended it is known what was put in. The answer may
		// take as long as it likes.
		sent = sync.OnceFunc(func() { x.report(x.exposed()) })
		defer sent()
	} else {
		x.report("")
	}
	trailer := x.send(out, sent)

	// What comes first goes first, in both directions. HTTP/2 knows no other
	// way, and says that it does not support it.
	_ = http.NewResponseController(w).EnableFullDuplex()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = x.n.scheme(), x.n.authorityName(), x.n.authorityName()
			p.Out.URL.RawQuery, p.Out.URL.ForceQuery = out.URL.RawQuery, out.URL.ForceQuery
			p.Out.Trailer = trailer
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v := out.Header[name]; v != nil {
					p.Out.Header[name] = v
				}
			}
		},
		Transport:      x.n.forward,
		FlushInterval:  -1,
		ModifyResponse: x.answer,
		ErrorHandler:   x.failed,
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	proxy.ServeHTTP(&answerWriter{ResponseWriter: w, x: x}, out)
	return nil
}

// upgrade leaves of a wish to leave HTTP only WebSocket: in another version of
// HTTP requests would go by that nobody judges.
func (x *exchange) upgrade(out *http.Request) *refusal {
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

// failed tells the guest that there is no answer.
func (x *exchange) failed(w http.ResponseWriter, _ *http.Request, err error) {
	var handshake *handshakeError
	if errors.As(err, &handshake) {
		x.n.report(Event{At: x.n.now(), What: Connect, Host: x.n.host, Port: x.n.port, Rule: -1, Why: cause(err)})
	}
	switch {
	case brig.KindOf(err) == brig.PolicyBlocked:
		tell(w, http.StatusForbidden, fmt.Sprintf("the request to %s is not made: %s", x.n.host, cause(err)))
	case x.broken.Load():
		tell(w, http.StatusBadRequest, "the body of the request cannot be read")
	default:
		tell(w, http.StatusBadGateway, fmt.Sprintf("there is no answer from %s: %s", x.n.host, cause(err)))
	}
}

// tell answers the guest in the place of the host.
func tell(w http.ResponseWriter, status int, text string) {
	clear(w.Header())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "brig: %s (the sandbox's egress policy)\n", text)
}

// put notes that a secret's value was put into the request.
func (x *exchange) put(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !slices.Contains(x.used, name) {
		x.used = append(x.used, name)
	}
	if !x.n.secure && slices.ContainsFunc(x.grants, func(g grant) bool { return g.Name == name && !g.Plain }) {
		x.bare = name
	}
}

// exposed says why the request may not go in the clear.
func (x *exchange) exposed() (why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.bare == "" {
		return ""
	}
	return "the secret " + x.bare + " is for https only"
}

// report says what became of the request; why is empty if it is made.
func (x *exchange) report(why string) {
	x.mu.Lock()
	used := slices.Clone(x.used)
	x.mu.Unlock()
	if why != "" {
		used = nil // nothing was sent
	}
	x.n.report(Event{
		At: x.n.now(), What: Request, Host: x.n.host, Port: x.n.port,
		Method: clip(x.asked.Method), Path: clip(x.asked.Path),
		Allowed: why == "", Rule: x.rule, Why: why, Secrets: used,
	})
}

// reportRefused says that something was refused before it was judged.
func (n *inspection) reportRefused(why string) {
	n.report(Event{At: n.now(), What: Request, Host: n.host, Port: n.port, Rule: -1, Why: why})
}

// begin counts a request, unless the inspection has ended.
func (n *inspection) begin() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.ended {
		n.serving.Add(1)
	}
	return !n.ended
}

// wait returns when no request is being served, and none will be.
func (n *inspection) wait() {
	n.mu.Lock()
	n.ended = true
	n.mu.Unlock()
	n.serving.Wait()
}
