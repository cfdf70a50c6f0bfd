package httpapi

import (
	"net/http"
	"net/http/httputil"
)

// Proxy forwards a request to a sandbox with p, and the response back. It
// removes Brig's credentials from the request after p.Rewrite has changed it,
// and shields the response before p.ModifyResponse sees it. p.Rewrite must be
// set.
func (s Shield) Proxy(p httputil.ReverseProxy, w http.ResponseWriter, r *http.Request) {
	rewrite, modify := p.Rewrite, p.ModifyResponse
	p.Rewrite = func(p *httputil.ProxyRequest) {
		rewrite(p)
		s.Request(p.Out)
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

// shieldedWriter shields the informational responses of a sandbox, which a
// proxy forwards as they come. Browsers accept cookies from them, too.
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
