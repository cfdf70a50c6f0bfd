package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

const labHost = "api.test"

// lab is an inspector between a real guest and a real server.
type lab struct {
	*inspector
	t      testing.TB
	ctx    context.Context
	stop   context.CancelFunc
	server *httptest.Server
	rules  brig.Egress
	keys   []Secret
	dials  atomic.Int64
	sent   atomic.Int64 // bytes to the server
	secure bool
	port   int

	mu     sync.Mutex
	events []Event
	over   sync.WaitGroup
}

// newLab starts a server for labHost, with TLS and HTTP/2 if secure is set.
func newLab(t testing.TB, secure bool, handler http.Handler) *lab {
	t.Helper()
	if secure {
		return newLabOf(t, "h2", handler)
	}
	return newLabOf(t, "h1", handler)
}

// newLabOf starts a server for labHost that speaks HTTP/1 ("h1"), HTTP/1 with TLS
// ("h1s"), or HTTP/2 with TLS ("h2").
func newLabOf(t testing.TB, host string, handler http.Handler) *lab {
	t.Helper()
	secure := host != "h1"
	l := &lab{t: t, secure: secure, port: 80, server: httptest.NewUnstartedServer(handler)}
	l.ctx, l.stop = context.WithCancel(t.Context())
	l.rules.Rules = []brig.EgressRule{{Host: "*"}}
	world := &CA{}
	l.inspector = &inspector{
		valuesSent: &sentValues{}, budget: newBudget(64 << 20), handshakeSlots: make(chan struct{}, maxConcurrentHandshakes),
		authority: &CA{}, now: time.Now, roots: newCertPool(t, world),
		judge: func(host string, port int, q brig.Request) (brig.Verdict, int) {
			return l.rules.CheckRequest(host, port, q)
		},
		secrets: func() []Secret { return l.keys },
		report: func(e Event) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.events = append(l.events, e)
		},
		dial: func(ctx context.Context, host string, port int) (net.Conn, error) {
			if host != labHost || port != l.port {
				t.Errorf("dialed %s:%d", host, port)
			}
			l.dials.Add(1)
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.server.Listener.Addr().String())
			if err != nil {
				return nil, err
			}
			return &counting{c.(*net.TCPConn), &l.sent}, nil
		},
	}
	if secure {
		l.port = 443
		leaf, err := world.issueLeaf(labHost, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		l.server.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}}
		l.server.EnableHTTP2 = host == "h2"
		l.server.StartTLS()
	} else {
		l.server.Start()
	}
	t.Cleanup(func() {
		l.stop()
		l.over.Wait()
		l.server.CloseClientConnections()
		l.server.Close()
	})
	return l
}

type counting struct {
	*net.TCPConn
	n *atomic.Int64
}

func (c *counting) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return c.TCPConn.Write(p)
}

// connect returns the guest's end of a connection that is being served.
func (l *lab) connect() net.Conn {
	l.t.Helper()
	guest, host := tcpPair(l.t)
	l.over.Go(func() { l.serve(l.ctx, host, labHost, l.port, l.secure) })
	l.t.Cleanup(func() { guest.Close() })
	return guest
}

func tcpPair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

// trust returns the guest's certificate pool.
func (l *lab) trust() *x509.CertPool { return newCertPool(l.t, l.authority) }

// client returns the guest's client, which may use HTTP/2 if h2 is set.
func (l *lab) client(h2 bool) *http.Client {
	t := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return l.connect(), nil },
		TLSClientConfig:   &tls.Config{RootCAs: l.trust()},
		ForceAttemptHTTP2: h2, DisableCompression: true,
	}
	l.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (l *lab) url(path string) string {
	if l.secure {
		return "https://" + labHost + path
	}
	return "http://" + labHost + path
}

// do sends a request and returns its response with the body.
func (l *lab) do(c *http.Client, r *http.Request) (*http.Response, string) {
	l.t.Helper()
	res, err := c.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		l.t.Fatalf("%s %s: %v after %q", r.Method, r.URL, err, body)
	}
	return res, string(body)
}

func (l *lab) request(method, path string, body io.Reader) *http.Request {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), method, l.url(path), body)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

func (l *lab) get(path string) (*http.Response, string) {
	l.t.Helper()
	return l.do(l.client(false), l.request("GET", path, nil))
}

// eventsSoFar returns the events so far.
func (l *lab) eventsSoFar() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Event(nil), l.events...)
}

// lastEvent returns the last event of a kind.
func (l *lab) lastEvent(what Kind) Event {
	l.t.Helper()
	// The response may arrive before the event.
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		events := l.eventsSoFar()
		for i := len(events) - 1; i >= 0; i-- {
			if events[i].Kind == what {
				return events[i]
			}
		}
		if time.Now().After(end) {
			l.t.Fatalf("there is no %s in %+v", what, events)
		}
	}
}
