package docker

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/docker/go-connections/tlsconfig"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/outbound"
	"github.com/brig-run/brig/internal/version"
)

// Limits of an engine's responses. The number of values is limited in addition
// to the number of bytes, because a decoded list of small items takes a
// hundred times the memory of its text.
const (
	maxHeader   = 256 << 10
	maxAnswer   = 8 << 20 // bytes of one response, or of one item of a stream
	maxValues   = 20_000  // values of one response, or of one item of a stream
	maxList     = 16 << 20
	maxInList   = 300_000 // values of a list of containers
	maxListItem = 4096
)

// responseTimeout is the maximum time for reading the body of a response that is
// not a stream.
var responseTimeout = 2 * time.Minute

// errAnswer is the error for a response that exceeds the limits.
var errAnswer = errors.New("the engine's answer is larger than any engine's")

// transport sends requests to an engine and limits the responses. It opens all
// connections itself, even with TLS, so that it can check each address.
type transport struct{ base *http.Transport }

// newTransport returns a transport to the engine at host, in the format of
// Options.
func newTransport(host string, files TLS) (*transport, error) {
	t := &transport{base: &http.Transport{
		MaxIdleConns: 6, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: maxHeader, DisableCompression: true,
	}}
	proto, addr, _ := strings.Cut(host, "://")
	dial := (&net.Dialer{Timeout: dialTimeout}).DialContext
	if proto == "tcp" {
		addr, _, _ = strings.Cut(addr, "/")
		dial = outbound.NewDialFunc(net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}, brig.CheckConfiguredAddr)
	}
	var config *tls.Config
	if files != (TLS{}) {
		var err error
		if config, err = files.config(addr); err != nil {
			return nil, err
		}
	}
	t.base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := dial(ctx, proto, addr)
		if err != nil || config == nil {
			return c, err
		}
		secured := tls.Client(c, config)
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, err
		}
		return secured, nil
	}
	return t, nil
}

// config reads the TLS files for a connection to addr.
func (files TLS) config(addr string) (*tls.Config, error) {
	c, err := tlsconfig.Client(tlsconfig.Options{CAFile: files.CA, CertFile: files.Cert, KeyFile: files.Key, ExclusiveRootPools: true})
	if err != nil {
		return nil, err
	}
	c.ServerName, _, err = net.SplitHostPort(addr)
	return c, err
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(r)
	if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, err
	}
	b := &boundedBody{ReadCloser: resp.Body, bytes: maxAnswer, values: maxValues}
	timed := true
	if resp.StatusCode < http.StatusBadRequest {
		last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		switch {
		case r.Method == http.MethodGet && (last == "archive" || last == "logs"):
			return resp, nil // the reader of this stream limits each item itself
		case last == "events", strings.HasSuffix(r.URL.Path, "/images/create"):
			b.stream, timed = true, false
		case last == "wait":
			timed = false
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			b.bytes, b.values, b.items = maxList, maxInList, maxListItem
		}
	}
	if timed {
		b.timeout = time.AfterFunc(responseTimeout, func() { _ = b.ReadCloser.Close() })
	}
	resp.Body = b
	return resp, nil
}

// attach starts an exec and returns its stream. The connection outlives ctx.
func (t *transport) attach(ctx context.Context, api *client.Client, exec string) (io.ReadWriteCloser, error) {
	const path = "http://" + client.DummyHost + "/v%s/exec/%s/start"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf(path, api.ClientVersion(), exec), strings.NewReader(`{"Detach":false,"Tty":false}`))
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Connection": {"Upgrade"}, "Upgrade": {"tcp"}, "User-Agent": {version.UserAgent()}}
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	stream, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the engine does not give its connection away: %s %s", resp.Status, bytes.TrimSpace(text))
	}
	return stream, nil
}

// boundedBody is the JSON body of a response. Read returns errAnswer when the
// body exceeds the limits. In a stream of values, each value is counted
// separately.
type boundedBody struct {
	io.ReadCloser
	bytes, values int
	items         int // maximum in the outermost list; 0 means no limit
	stream        bool
	timeout       *time.Timer

	read, found, listed int
	depth               int
	quoted, escaped     bool
	err                 error
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	if !b.countValues(p[:n]) {
		b.err = errAnswer
		_ = b.ReadCloser.Close()
		return 0, b.err
	}
	return n, err
}

// countValues counts the values in a part of the response. It tracks only JSON
// strings and the nesting depth.
func (b *boundedBody) countValues(p []byte) bool {
	for _, c := range p {
		b.read++
		switch {
		case b.escaped:
			b.escaped = false
		case b.quoted:
			b.escaped = c == '\\'
			b.quoted = c != '"'
		case c == '"':
			b.quoted = true
		case c == '{' || c == '[':
			b.depth++
			b.found++
		case c == '}' || c == ']':
			if b.depth--; b.depth <= 0 && b.stream {
				b.depth, b.read, b.found = 0, 0, 0
			}
		case c == ',' || c == ':':
			b.found++
			if c == ',' && b.depth == 1 {
				b.listed++
			}
		}
		if b.read > b.bytes || b.found > b.values || b.items > 0 && b.listed >= b.items {
			return false
		}
	}
	return true
}

// Close implements io.Closer.
func (b *boundedBody) Close() error {
	if b.timeout != nil {
		b.timeout.Stop()
	}
	return b.ReadCloser.Close()
}

// connect creates the client of the provider's engine.
func (p *Provider) connect() (err error) {
	if p.transport, err = newTransport(p.Host, p.TLS); err != nil {
		return err
	}
	p.api, err = p.newClient(p.transport)
	return err
}

func (p *Provider) newClient(transport http.RoundTripper) (*client.Client, error) {
	return client.New(client.WithHost(p.Host), client.WithUserAgent(version.UserAgent()),
		client.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}))
}
