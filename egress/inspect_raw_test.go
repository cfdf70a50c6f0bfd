package egress

import (
	"bufio"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig/internal/attack"
)

// serveRaw makes the lab's host answer each request with a text, and then wait for
// the end of the connection.
func (l *lab) serveRaw(respond func(*http.Request) string) {
	l.dial = func(context.Context, string, int) (net.Conn, error) {
		ours, theirs := tcpPair(l.t)
		l.over.Go(func() {
			defer theirs.Close()
			r := bufio.NewReader(theirs)
			for {
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				if _, err := io.WriteString(theirs, respond(req)); err != nil {
					return
				}
			}
		})
		return ours, nil
	}
}

// sendRaw sends a request as text, and returns all that the guest receives until the
// response has ended.
func (l *lab) sendRaw(request string) string {
	l.t.Helper()
	conn := l.connect()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		l.t.Fatal(err)
	}
	var all strings.Builder
	r := bufio.NewReader(io.TeeReader(conn, &all))
	for {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return all.String()
		}
		_, err = io.Copy(io.Discard, res.Body)
		if err != nil || res.StatusCode >= 200 || res.StatusCode == http.StatusSwitchingProtocols {
			return all.String()
		}
	}
}

// A host puts a value, and a digest of it, in the head of a response that
// changes to WebSocket. The control is a host that never received the value.
func TestSwitchingProtocolsIsScrubbed(t *testing.T) {
	const guess = "sk-live-51HqLyjWDarjtT1zdp7dcXYZ"
	for _, sent := range []bool{true, false} {
		l := newLab(t, false, http.NotFoundHandler())
		k := key()
		k.Plain = true
		k.Value = func(context.Context) ([]byte, error) { return []byte(guess), nil }
		if sent {
			l.keys = []Secret{k}
		}
		l.serveRaw(func(r *http.Request) string {
			sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
			return "HTTP/1.1 101 " + guess + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Digest: sha-256=:x:\r\nX-Echo: " + guess +
				"\r\nSec-Websocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n"
		})
		got := l.sendRaw("GET / HTTP/1.1\r\nHost: api.test\r\nX-Key: " + placeholder + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
			"Sec-Websocket-Version: 13\r\nSec-Websocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		leaked := strings.Contains(got, guess) || strings.Contains(got, "Digest")
		if !strings.HasPrefix(got, "HTTP/1.1 101 Switching Protocols\r\n") || leaked == sent {
			t.Errorf("sent %t: %q", sent, got)
		}
		if sent {
			attack.RecordCase("SEC-03", "the head of a change to WebSocket", leaked)
		}
	}
}

// A host sends endless informational responses, or sends them to a guest that does not support them
// because it uses HTTP/1.0. The control is a guest of HTTP/1.1, which receives a few.
func TestInformationalResponsesAreLimited(t *testing.T) {
	for version, limit := range map[string]int{"1.1": maxInformational, "1.0": 0} {
		l := newLab(t, false, http.NotFoundHandler())
		l.serveRaw(func(*http.Request) string {
			return strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 500) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
		})
		got := l.sendRaw(fmt.Sprintf("GET / HTTP/%s\r\nHost: api.test\r\n\r\n", version))
		if n := strings.Count(got, "103 Early Hints"); n != limit || !strings.HasSuffix(got, "hi") {
			t.Errorf("HTTP/%s: %d hints, %.100q", version, n, got)
		}
	}
}

// A host responds with an invalid status. The guest receives a response, and its connection stays
// open.
func TestInvalidStatusKeepsConnectionOpen(t *testing.T) {
	for status, want := range map[string]string{"099": "502", "000": "502", "200": "200", "599": "599", "999": "999"} {
		l := newLab(t, false, http.NotFoundHandler())
		l.serveRaw(func(*http.Request) string { return "HTTP/1.1 " + status + " Odd\r\nContent-Length: 0\r\n\r\n" })
		if got := l.sendRaw("GET / HTTP/1.1\r\nHost: api.test\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 "+want+" ") {
			t.Errorf("%s: %q", status, got)
		}
	}
}

// A guest closes its direction after the request and waits for the response, as some programs do.
// The control is a guest that closes its direction within the request.
func TestHalfClosedGuestReceivesResponse(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for request, whole := range map[string]bool{
			"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n":                            true,
			"POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 2\r\n\r\nhi":    true,
			"POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 9000\r\n\r\nhi": false,
			"GET / HTTP/1.1\r\nHost:":                                             false,
		} {
			closed := make(chan struct{})
			l := newLab(t, secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				select { // answers after the end has arrived
				case <-closed:
				case <-r.Context().Done():
				}
				_, _ = io.WriteString(w, "late")
			}))
			conn := l.connect()
			if secure {
				conn = tls.Client(conn, &tls.Config{RootCAs: l.trust(), ServerName: labHost, NextProtos: []string{"http/1.1"}})
			}
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			_, _ = io.WriteString(conn, request)
			if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(50*time.Millisecond, func() { close(closed) })
			got, _ := io.ReadAll(conn)
			if ok := strings.HasPrefix(string(got), "HTTP/1.1 200 ") && strings.Contains(string(got), "late"); ok != whole {
				t.Errorf("secure %t, %.20q: %q", secure, request, got)
			}
		}
	}
}

// A request of a guest that has closed its direction is canceled after a limited time.
func TestHalfCloseIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h halfClose
		h.set(func() { h.serving = true })
		begin := time.Now()
		if err := h.end(); err != io.EOF || time.Since(begin) != halfCloseTimeout {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		time.AfterFunc(time.Second, func() { h.set(func() { h.timedOut = true }) })
		if err := h.end(); err != os.ErrDeadlineExceeded {
			t.Error(err)
		}
		h.set(func() { h.serving, h.timedOut = false, false })
		if err := h.end(); err != io.EOF {
			t.Error(err)
		}
	})
}
