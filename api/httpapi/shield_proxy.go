package httpapi

import (
	"net/http"
	"net/http/httputil"
	"strings"
)

// Forward forwards a request to a sandbox with p, and the response back. It
// removes Brig's credentials from the request after p.Rewrite has changed it,
// and shields the response before p.ModifyResponse is called. p.Rewrite must be
// set.
func (s Shield) Forward(p httputil.ReverseProxy, w http.ResponseWriter, r *http.Request) {
	rewrite, modify := p.Rewrite, p.ModifyResponse
	p.Rewrite = func(p *httputil.ProxyRequest) {
		rewrite(p)
		s.RemoveCredentials(p.Out)
		removeHTTPUpgrade(p.Out.Header)
	}
	p.ModifyResponse = func(r *http.Response) error {
		ShieldResponse(r.Header)
		if modify == nil {
			return nil
		}
		return modify(r)
	}
	p.ServeHTTP(shieldedWriter{w}, r)
}

// removeHTTPUpgrade removes an offer to upgrade to another version of HTTP or
// to TLS. Several clients send such offers by default. If the sandbox accepted
// the offer, the client's later requests would reach the sandbox unfiltered,
// with the client's credentials.
func removeHTTPUpgrade(h http.Header) {
	for _, offer := range strings.Split(strings.Join(h.Values("Upgrade"), ","), ",") {
		name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(offer)), "/")
		if name == "h2c" || name == "h2" || name == "http" || name == "tls" {
			h.Del("Upgrade")
			h.Del("Connection")
			h.Del("HTTP2-Settings")
			return
		}
	}
}

// shieldedWriter shields the informational responses of a sandbox, which a
// proxy forwards immediately. Browsers accept cookies from them, too.
type shieldedWriter struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w shieldedWriter) WriteHeader(code int) {
	if code >= 100 && code < 200 {
		ShieldResponse(w.Header())
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController find the connection.
func (w shieldedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
