//go:build bench

package main

import (
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// The attacker's sandboxes may connect to these host names. Connections to abusePlain over TLS or
// plain HTTP are not inspected. Connections to abuseLooked pass through the inspecting proxy.
const (
	abusePlain  = "plain.test"
	abuseLooked = "looked.test"
)

// abuseWorld is the attacker's network: a name server, servers on an address
// that sandboxes may connect to, and an identity provider.
type abuseWorld struct {
	Own       string // the address of the servers
	DNS       string // the address of the name server
	TCP, TLS  int    // ports
	Issuer    string // the URL of the identity provider
	Authority string // PEM of the CA of the TLS server's certificate

	names, conns, requests, frames atomic.Int64
}

// config returns the configuration of the server under attack. It has no warm pool, because a pool
// would hide how long it takes to create a sandbox.
func (w *abuseWorld) config(l *lab) string {
	roots := filepath.Join(filepath.Dir(l.config), "roots.pem")
	if err := os.WriteFile(roots, []byte(w.Authority), 0o600); err != nil {
		return "" // the server then reports that the file is missing
	}
	return fmt.Sprintf(`pool: {size: -1}
metrics: {trial: 0s}
url: http://127.0.0.1:1
egress: {networks: [%s/32], resolver: %q, roots: %q}
oidc: {issuer: %q, client_id: brig, allow_private: true, tenant: {default: victim}, role: {default: viewer}}
`, w.Own, w.DNS, roots, w.Issuer)
}

// newWorld starts the servers. They end with the process.
func newWorld() (*abuseWorld, error) {
	own, err := findOwnAddress()
	if err != nil {
		return nil, err
	}
	w := &abuseWorld{Own: own.String()}
	cert, _, err := selfSigned(abusePlain, abuseLooked)
	if err != nil {
		return nil, err
	}
	w.Authority = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
	dns, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w.DNS = dns.LocalAddr().String()
	go w.answerNames(dns, own.As4())
	sink, err := net.Listen("tcp", net.JoinHostPort(w.Own, "0"))
	if err != nil {
		return nil, err
	}
	w.TCP = sink.Addr().(*net.TCPAddr).Port
	go w.serveSink(sink)
	secure, err := net.Listen("tcp", net.JoinHostPort(w.Own, "0"))
	if err != nil {
		return nil, err
	}
	w.TLS = secure.Addr().(*net.TCPAddr).Port
	srv := &http.Server{Handler: http.HandlerFunc(w.serveRequest), TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}}}
	srv.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			w.conns.Add(1)
		}
	}
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1000}
	srv.ErrorLog = log.New(io.Discard, "", 0)
	go func() { _ = srv.ServeTLS(secure, "", "") }() // until the benchmark ends
	issuer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w.Issuer = "http://" + issuer.Addr().String()
	go func() { _ = http.Serve(issuer, http.HandlerFunc(w.identify)) }()
	return w, nil
}

// answerNames answers each address query with the world's address.
func (w *abuseWorld) answerNames(c net.PacketConn, own [4]byte) {
	buf := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) == 0 {
			continue
		}
		w.names.Add(1)
		m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}, Body: &dnsmessage.AResource{A: own}}}
		}
		if b, err := m.Pack(); err == nil {
			_, _ = c.WriteTo(b, from) // the client may have exited
		}
	}
}

// serveSink accepts connections, discards all received data, and never sends
// data.
func (w *abuseWorld) serveSink(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			time.Sleep(10 * time.Millisecond) // too many connections are open
			continue
		}
		w.conns.Add(1)
		go func() {
			defer c.Close()
			_, _ = io.Copy(io.Discard, c)
		}()
	}
}

// serveRequest serves requests that arrive over TLS. It never responds to /hang, and it accepts
// WebSocket connections but discards their messages.
func (w *abuseWorld) serveRequest(rw http.ResponseWriter, r *http.Request) {
	w.requests.Add(1)
	switch {
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		w.serveWebSocket(rw, r)
	case r.URL.Path == "/hang":
		<-r.Context().Done()
	default:
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintln(rw, "hello")
	}
}

func (w *abuseWorld) serveWebSocket(rw http.ResponseWriter, r *http.Request) {
	c, buf, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", acceptKey(r.Header.Get("Sec-WebSocket-Key")))
	if buf.Flush() != nil {
		return
	}
	n, _ := io.Copy(io.Discard, buf)
	w.frames.Add(n)
}

// identify implements the endpoints of an identity provider that are needed to start a login.
func (w *abuseWorld) identify(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	if !strings.HasSuffix(r.URL.Path, "openid-configuration") {
		fmt.Fprint(rw, `{"keys":[]}`)
		return
	}
	fmt.Fprintf(rw, `{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":%q,"jwks_uri":%q,"response_types_supported":["code"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["RS256"],"code_challenge_methods_supported":["S256"]}`,
		w.Issuer, w.Issuer+"/authorize", w.Issuer+"/token", w.Issuer+"/keys")
}

// count adds the traffic that the world received to the attacker's counters.
func (w *abuseWorld) count(counts map[string]int64) {
	for what, n := range map[string]int64{"names asked": w.names.Load(), "connections": w.conns.Load(), "requests": w.requests.Load(), "bytes of frames": w.frames.Load()} {
		if n > 0 {
			counts[what] = n
		}
	}
}

// acceptKey returns the Sec-WebSocket-Accept value for a request's key (RFC
// 6455).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
