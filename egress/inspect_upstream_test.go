package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// serveOtherHost replaces the lab's host with another server. change changes the server's configuration
// before the start.
func (l *lab) serveOtherHost(handler http.HandlerFunc, change func(*httptest.Server)) {
	l.t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: l.server.TLS.Certificates}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	change(s)
	s.StartTLS()
	l.t.Cleanup(func() {
		l.stop()
		l.over.Wait()
		s.CloseClientConnections()
		s.Close()
	})
	l.dial = func(ctx context.Context, _ string, _ int) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", s.Listener.Addr().String())
	}
}

// A host that accepts one request at a time on a connection causes many
// connections. What it may send on each is charged, so the number is limited. The
// control is an honest host with the same requests.
func TestUpstreamWindowsAreCharged(t *testing.T) {
	const perStream = 512 << 10
	for _, c := range []struct {
		name              string
		requests, streams int
		hostile           bool
	}{{"hostile", 65, 1, true}, {"few streams", 45, 20, false}, {"honest", 65, 250, false}} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, true, http.NotFoundHandler())
			l.budget = newBudget(DefaultMemory)
			var used atomic.Int64 // requests that the host has
			release := make(chan struct{})
			l.serveOtherHost(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodHead {
					return
				}
				used.Add(1)
				if !c.hostile {
					<-release
					return
				}
				for junk := make([]byte, 16<<10); ; {
					if _, err := w.Write(junk); err != nil {
						return
					}
				}
			}, func(s *httptest.Server) {
				s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: c.streams}
			})
			client := l.client(true)
			first, text := l.do(client, l.request("HEAD", "/", nil))
			if first.ProtoMajor != 2 || first.StatusCode != http.StatusOK {
				t.Fatalf("%s %s %s", first.Proto, first.Status, text)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var all sync.WaitGroup
			var responses atomic.Int64
			for range c.requests {
				before := used.Load()
				all.Go(func() {
					res, err := client.Do(l.request("GET", "/", nil).WithContext(ctx))
					if err == nil && res.StatusCode == http.StatusOK {
						responses.Add(1)
					}
					if !c.hostile && res != nil {
						res.Body.Close()
					}
				})
				// Concurrent requests meet on one connection, and the host refuses them.
				for end := time.Now().Add(10 * time.Millisecond); used.Load() == before && time.Now().Before(end); {
					time.Sleep(time.Millisecond / 4)
				}
			}
			if !c.hostile {
				close(release)
				if all.Wait(); responses.Load() != int64(c.requests) {
					t.Errorf("control: %d requests are answered", responses.Load())
				}
				return
			}
			n := used.Load()
			for same := 0; same < 20; same++ {
				if time.Sleep(10 * time.Millisecond); used.Load() != n {
					n, same = used.Load(), 0
				}
			}
			charged := l.budget.inUse()
			t.Logf("%d connections, %d KiB charged", n, charged>>10)
			if charged > DefaultMemory || n*perStream > charged {
				t.Errorf("on %d connections the host may send %d KiB, and %d KiB are charged", n, n*perStream>>10, charged>>10)
			}
			cancel()
			l.stop()
			l.over.Wait()
			for end := time.Now().Add(10 * time.Second); l.budget.inUse() != 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond) // goroutines of net/http still end
			}
			if remaining := l.budget.inUse(); remaining != 0 {
				t.Errorf("%d bytes are still charged", remaining)
			}
		})
	}
}

// A host cannot make the proxy parse and keep many or long certificates. The
// controls are chains that are just short enough.
func TestLongChainsAreRejected(t *testing.T) {
	for _, c := range []struct {
		name   string
		chain  func(leaf []byte) [][]byte
		status int
	}{
		{"the most certificates", func(leaf []byte) [][]byte { return repeatBytes(leaf, maxChain) }, http.StatusOK},
		{"too many", func(leaf []byte) [][]byte { return repeatBytes(leaf, maxChain+1) }, http.StatusBadGateway},
		{"55", func(leaf []byte) [][]byte { return repeatBytes(leaf, 55) }, http.StatusBadGateway},
		{"250 KiB", func(leaf []byte) [][]byte { return repeatBytes(leaf, 250<<10/len(leaf)-1) }, http.StatusBadGateway},
	} {
		l := newLab(t, true, http.NotFoundHandler())
		l.serveOtherHost(func(http.ResponseWriter, *http.Request) {}, func(s *httptest.Server) {
			leaf := s.TLS.Certificates[0]
			leaf.Certificate = c.chain(leaf.Certificate[0])
			s.TLS.Certificates = []tls.Certificate{leaf}
		})
		res, text := l.get("/")
		if res.StatusCode != c.status || c.status != http.StatusOK && !strings.Contains(text, "too long") {
			t.Errorf("%s: %d %s", c.name, res.StatusCode, text)
		}
	}
	limit := &handshakeLimit{}
	if limit.checkChain([][]byte{make([]byte, maxChainBytes)}, nil) != nil || limit.checkChain([][]byte{make([]byte, 1)}, nil) == nil {
		t.Error("the length of a chain is not limited")
	}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() { _, _ = io.Copy(theirs, bytes.NewReader(make([]byte, 2*maxHandshake))) }()
	limit = &handshakeLimit{hostConn: &hostConn{closeNotifyConn: &closeNotifyConn{Conn: ours}}}
	limit.remaining.Store(maxHandshake)
	if n, err := io.Copy(io.Discard, limit); n != maxHandshake || err != errLongHandshake {
		t.Errorf("%d bytes of a handshake, %v", n, err)
	}
}

func repeatBytes(b []byte, n int) (out [][]byte) {
	for range n {
		out = append(out, b)
	}
	return out
}
