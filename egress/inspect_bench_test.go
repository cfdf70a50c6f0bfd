package egress

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkInspect compares direct requests to a server over loopback with
// inspected ones. It measures requests in sequence on one connection, requests
// on a new connection each, and a response of 16 MiB.
func BenchmarkInspect(b *testing.B) {
	megabytes := strings.Repeat("0123456789abcdef", 1<<20)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			io.WriteString(w, megabytes)
			return
		}
		io.WriteString(w, "ok")
	})
	for _, how := range []string{"plain", "inspected", "scrubbed"} {
		for _, kind := range []string{"clear", "tls", "h2"} {
			l := newLab(b, kind != "clear", handler)
			if how == "scrubbed" {
				l.keys = []Secret{key()}
			}
			client := func() *http.Client {
				c := l.client(kind == "h2")
				if how == "plain" {
					t := c.Transport.(*http.Transport)
					t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
						return (&net.Dialer{}).DialContext(ctx, "tcp", l.server.Listener.Addr().String())
					}
					t.TLSClientConfig = &tls.Config{RootCAs: l.roots}
				}
				return c
			}
			b.Run(how+"/"+kind+"/kept", func(b *testing.B) {
				c := client()
				for b.Loop() {
					l.do(c, l.request("GET", "/", nil))
				}
			})
			b.Run(how+"/"+kind+"/new", func(b *testing.B) {
				for b.Loop() {
					c := client()
					l.do(c, l.request("GET", "/", nil))
					c.CloseIdleConnections()
				}
			})
			b.Run(how+"/"+kind+"/large", func(b *testing.B) {
				c := client()
				b.SetBytes(int64(len(megabytes)))
				for b.Loop() {
					l.do(c, l.request("GET", "/large", nil))
				}
			})
		}
	}
}
