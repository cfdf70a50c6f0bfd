package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// sink is a server that records the bytes that it read.
type sink struct {
	mu       sync.Mutex
	raw      strings.Builder
	requests []string
	broken   int // messages that ended prematurely
}

// serve answers requests until the connection ends.
func (s *sink) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(io.TeeReader(conn, s))
	for {
		q, err := http.ReadRequest(r)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, net.ErrClosed) {
				s.recordRequest("", true)
			}
			return
		}
		body, err := io.ReadAll(q.Body)
		s.recordRequest(fmt.Sprintf("%s %s %s %q", q.Method, q.Host, q.RequestURI, body), err != nil)
		if err != nil {
			return
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raw.Write(p)
}

func (s *sink) recordRequest(request string, broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if broken {
		s.broken++
	} else {
		s.requests = append(s.requests, request)
	}
}

// sendThrough sends text over plain HTTP to an inspector that allows GET and
// POST of /ok. It returns the guest's response, the sink, and the events.
func sendThrough(t testing.TB, text []byte, patience time.Duration) (response string, s *sink, allowed []string, events []Event) {
	s = &sink{}
	var mu sync.Mutex
	var sinks sync.WaitGroup
	i := &inspector{
		budget: newBudget(DefaultMemory), handshakeSlots: make(chan struct{}, maxConcurrentHandshakes),
		valuesSent: &sentValues{},
		authority:  &CA{}, now: time.Now,
		report: func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		},
		judge: func(host string, port int, q brig.Request) (brig.Verdict, int) {
			if host != labHost || port != 80 {
				t.Errorf("judged %s:%d", host, port)
			}
			if q.Path == "/ok" && (q.Method == "GET" || q.Method == "POST") {
				return brig.Allowed, 0
			}
			return brig.Denied, -1
		},
		dial: func(context.Context, string, int) (net.Conn, error) {
			a, b := net.Pipe()
			sinks.Go(func() { s.serve(b) })
			return a, nil
		},
	}
	guest, host := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		i.serve(t.Context(), host, labHost, 80, false)
	}()
	// The guest disconnects when it has a response to every possible request,
	// or when the server disconnects.
	out := &strings.Builder{}
	hungUp := make(chan struct{})
	go func() {
		defer close(hungUp)
		io.Copy(out, guest)
	}()
	guest.SetWriteDeadline(time.Now().Add(patience))
	guest.Write(append(text, "\r\nGET /end HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n"...))
	select {
	case <-hungUp:
	case <-time.After(patience): // the server waits for a body that never arrives
	}
	guest.Close()
	<-hungUp
	<-served
	sinks.Wait()
	mu.Lock()
	defer mu.Unlock()
	for _, e := range events {
		if e.Allowed {
			allowed = append(allowed, e.Method+" "+e.Host+" "+e.Path)
		}
	}
	return out.String(), s, allowed, events
}

// checkOnlyJudged is the oracle: the server received only requests that were checked
// and allowed, each once and in order.
func checkOnlyJudged(t testing.TB, text []byte, s *sink, allowed []string) {
	t.Helper()
	if len(s.requests)+s.broken > len(allowed) {
		t.Errorf("%q: the server saw %q and %d broken; allowed were %q", text, s.requests, s.broken, allowed)
		return
	}
	for i, q := range s.requests {
		target, _, _ := strings.Cut(q, " \"")
		target, _, _ = strings.Cut(target, "?")
		if s.broken == 0 && target != allowed[i] {
			t.Errorf("%q: the server saw %q; allowed were %q", text, s.requests, allowed)
		}
	}
}

const get, host = "GET /ok HTTP/1.1\r\n", "Host: api.test\r\n"

// inner is the text that an attacker wants a server to read as a request.
const inner = "GET /smuggled HTTP/1.1\r\nHost: api.test\r\n\r\n"

func TestAmbiguousHTTP1RequestsAreRejected(t *testing.T) {
	const post = "POST /ok HTTP/1.1\r\n" + host
	for _, c := range []struct {
		name, text string
		want       int // the status of the first response
	}{
		{"control: get", get + host + "\r\n", 200},
		{"control: length", post + "Content-Length: 5\r\n\r\nhello", 200},
		{"control: chunks", post + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n", 200},
		{"control: a request in a body", post + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(inner), inner), 200},
		{"control: a request after a request", get + host + "\r\n" + inner, 200},
		{"control: absolute", "GET http://api.test/ok HTTP/1.1\r\n" + host + "\r\n", 200},
		{"control: HTTP/1.0", "GET /ok HTTP/1.0\r\n" + host + "\r\n", 200},
		{"control: an empty field", get + host + "X:\r\n\r\n", 200},

		{"length and chunks", post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner, 400},
		{"chunks and length", post + "Transfer-Encoding: chunked\r\nContent-Length: 60\r\n\r\n0\r\n\r\n" + inner, 400},
		{"two lengths", post + "Content-Length: 0\r\nContent-Length: 45\r\n\r\n" + inner, 400},
		{"two lengths alike", post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400},
		{"lengths in a list", post + "Content-Length: 0, 45\r\n\r\n" + inner, 400},
		{"length with a sign", post + "Content-Length: +5\r\n\r\nhello", 400},
		{"length below nothing", post + "Content-Length: -1\r\n\r\n" + inner, 400},
		{"length in hex", post + "Content-Length: 0x5\r\n\r\nhello", 400},
		{"length with a space", post + "Content-Length: 4 5\r\n\r\nhello", 400},
		{"length too large", post + "Content-Length: 99999999999999999999\r\n\r\n", 400},
		{"empty length", post + "Content-Length: \r\n\r\n" + inner, 400},
		{"space before the colon", post + "Content-Length : 45\r\n\r\n" + inner, 400},
		{"tab before the colon", post + "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n" + inner, 400},
		{"coding with a space", post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + inner, 400},
		{"underscore", post + "Content_Length: 45\r\n\r\n" + inner, 400},
		{"underscore in coding", post + "Transfer_Encoding: chunked\r\n\r\n" + inner, 400},
		{"two codings", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + inner, 400},
		{"codings in a list", post + "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n" + inner, 400},
		{"unknown coding", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner, 400},
		{"coding with a control", post + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + inner, 400},
		{"coding in quotes", post + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n" + inner, 400},
		{"coding of HTTP/1.0", "POST /ok HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner, 400},
		{"folded coding", post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + inner, 400},
		{"folded field", get + host + "X: a\r\n b\r\n\r\n", 400},
		{"folded first field", get + " X: a\r\n" + host + "\r\n", 400},
		{"bare line feeds", "GET /ok HTTP/1.1\nHost: api.test\n\n", 400},
		{"one bare line feed", get + host + "X: a\n\r\n", 400},
		{"a line feed in a field", get + host + "X: a\nY: b\r\n\r\n", 400},
		{"a bare return", get + host + "X: a\rY: b\r\n\r\n", 400},
		{"a return in a name", get + host + "X\r: a\r\n\r\n", 400},
		{"NUL in a field", get + host + "X: a\x00b\r\n\r\n", 400},
		{"NUL in the host", get + "Host: api.test\x00.evil.test\r\n\r\n", 400},
		{"NUL in the target", "GET /ok\x00 HTTP/1.1\r\n" + host + "\r\n", 400},
		{"no colon", get + host + "Xabc\r\n\r\n", 400},
		{"no name", get + host + ": abc\r\n\r\n", 400},
		{"a name with a space", get + host + "X Y: abc\r\n\r\n", 400},
		{"a name that is not ASCII", get + host + "X\xc3\xa9: abc\r\n\r\n", 400},
		{"two hosts", get + host + "Host: evil.test\r\n\r\n", 400},
		{"two hosts alike", get + host + host + "\r\n", 400},
		{"no host", get + "\r\n", 400},
		{"no host in HTTP/1.0", "GET /ok HTTP/1.0\r\n\r\n", 421},
		{"another host", get + "Host: evil.test\r\n\r\n", 421},
		{"an empty host", get + "Host: \r\n\r\n", 421},
		{"a host with a user", get + "Host: api.test@evil.test\r\n\r\n", 400},
		{"two hosts in one", get + "Host: api.test, evil.test\r\n\r\n", 400},
		{"a host with a path", get + "Host: api.test/x\r\n\r\n", 400},
		{"absolute, another host", "GET http://evil.test/ok HTTP/1.1\r\n" + host + "\r\n", 400},
		{"absolute, another host twice", "GET http://evil.test/ok HTTP/1.1\r\nHost: evil.test\r\n\r\n", 421},
		{"absolute, another host in the header", "GET http://api.test/ok HTTP/1.1\r\nHost: evil.test\r\n\r\n", 400},
		{"absolute, another scheme", "GET https://api.test/ok HTTP/1.1\r\n" + host + "\r\n", 421},
		{"absolute, of files", "GET file:///ok HTTP/1.1\r\n" + host + "\r\n", 400},
		{"absolute, a user", "GET http://x@api.test/ok HTTP/1.1\r\nHost: x@api.test\r\n\r\n", 400},
		{"absolute, a query for a path", "GET http://evil.test?/ok HTTP/1.1\r\n" + host + "\r\n", 400},
		{"two slashes", "GET //evil.test/ok HTTP/1.1\r\n" + host + "\r\n", 403},
		{"no slash", "GET ok HTTP/1.1\r\n" + host + "\r\n", 400},
		{"opaque", "GET http:ok HTTP/1.1\r\n" + host + "\r\n", 400},
		{"a star", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n", 400},
		{"a fragment", "GET /ok#/smuggled HTTP/1.1\r\n" + host + "\r\n", 400},
		{"CONNECT", "CONNECT api.test:80 HTTP/1.1\r\nHost: api.test:80\r\n\r\n" + inner, 405},
		{"CONNECT with a user", "CONNECT api.test@evil.test:80 HTTP/1.1\r\n" + host + "\r\n", 405},
		{"CONNECT a path", "CONNECT /ok HTTP/1.1\r\n" + host + "\r\n", 405},
		{"two spaces", "GET  /ok HTTP/1.1\r\n" + host + "\r\n", 400},
		{"a space in the target", "GET /ok x HTTP/1.1\r\n" + host + "\r\n", 400},
		{"a space at the end", "GET /ok HTTP/1.1 \r\n" + host + "\r\n", 400},
		{"a tab", "GET\t/ok HTTP/1.1\r\n" + host + "\r\n", 400},
		{"no version", "GET /ok\r\n" + host + "\r\n", 400},
		{"version 1.2", "GET /ok HTTP/1.2\r\n" + host + "\r\n", 400},
		{"version 1.10", "GET /ok HTTP/1.10\r\n" + host + "\r\n", 400},
		{"version 2 in the clear", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
		{"an invalid method", "GE(T /ok HTTP/1.1\r\n" + host + "\r\n", 400},
		{"chunk: no size", post + "Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n", 400},
		{"chunk: a sign", post + "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n", 400},
		{"chunk: 0x", post + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", 400},
		{"chunk: too large", post + "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n", 400},
		{"chunk: longer than its size", post + "Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n", 400},
		{"chunk: bare line feed", post + "Transfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n" + inner, 400},
		{"chunk: line feed in an extension", post + "Transfer-Encoding: chunked\r\n\r\n5;\nxx\r\nhello\r\n0\r\n\r\n", 400},
		{"chunk: bare CR in an extension", post + "Transfer-Encoding: chunked\r\n\r\n5;a\rb\r\nhello\r\n0\r\n\r\n", 400},
		{"trailer: a length", post + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n" + inner, 400},
		{"trailer: a host", post + "Transfer-Encoding: chunked\r\nTrailer: Host\r\n\r\n0\r\nHost: evil.test\r\n\r\n", 400},
		{"trailer: no colon", post + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + inner, 400},
		{"an upgrade to HTTP/2", get + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", 200},
		{"an upgrade to an unsupported protocol", get + host + "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\nSec-WebSocket-Key: x\r\n\r\n" + inner, 200},
		{"an upgrade with a body", get + host + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nContent-Length: 45\r\n\r\n" + inner, 400},
		{"an upgrade that is refused", get + host + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n" + inner, 200},
		{"the path in the header", get + host + "X-Original-URL: /smuggled\r\n\r\n", 400},
		{"the path in another header", get + host + "X-Rewrite-URL: /smuggled\r\n\r\n", 400},
		{"the method in the header", get + host + "X-HTTP-Method-Override: DELETE\r\n\r\n", 400},
		{"an expectation", post + "Expect: 200-maybe\r\nContent-Length: 5\r\n\r\nhello", 417},
		{"a header too long", get + host + "X: " + strings.Repeat("x", 200<<10) + "\r\n\r\n", 431},
		{"too many fields", get + host + strings.Repeat("X: 12345678901234567890\r\n", 5000) + "\r\n", 431},
		{"a first line too long", "GET /" + strings.Repeat("x", 200<<10) + " HTTP/1.1\r\n" + host + "\r\n", 431},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if !strings.HasPrefix(c.name, "control") {
				attack.Case(t, "NET-11", c.name)
			}
			response, s, allowed, events := sendThrough(t, []byte(c.text), 5*time.Second)
			if !strings.HasPrefix(response, fmt.Sprintf("HTTP/1.1 %d ", c.want)) && !strings.HasPrefix(response, fmt.Sprintf("HTTP/1.0 %d ", c.want)) {
				t.Errorf("answered %.100q", response)
			}
			checkOnlyJudged(t, []byte(c.text), s, allowed)
			if c.want != 200 && (len(s.requests) > 0 || s.broken == 0 && s.raw.Len() > 0) {
				t.Errorf("the server saw %q", s.raw.String())
			}
			if c.want == 200 && len(s.requests) != 1 {
				t.Errorf("the server saw %q", s.requests)
			}
			if c.want == 200 && strings.Contains(s.raw.String(), "pgrade") && !strings.HasPrefix(c.name, "an upgrade that is refused") {
				t.Errorf("an upgrade went out: %q", s.raw.String())
			}
			if c.want == 421 && len(events) == 0 {
				t.Error("nothing was reported")
			}
		})
	}
}

// Without the gate, the server accepts some of the messages. This proves that
// the gate causes the results of the table.
func TestSmugglingSucceedsWithoutGate(t *testing.T) {
	for _, text := range []string{
		"POST /ok HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET /ok HTTP/1.1\nHost: api.test\n\n",
		"GET http://api.test/ok HTTP/1.1\r\nHost: evil.test\r\n\r\n",
	} {
		a, b := net.Pipe()
		go io.WriteString(a, text)
		_, err := http.ReadRequest(bufio.NewReader(b))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		attack.RecordMutant("NET-11", fmt.Sprintf("%q", text), "the gate before the parser", err == nil)
		a.Close()
	}
}

// FuzzInspect sends arbitrary bytes. The server behind the inspector must
// receive only requests that were checked.
func FuzzInspect(f *testing.F) {
	for _, text := range []string{
		get + host + "\r\n",
		"POST /ok HTTP/1.1\r\n" + host + "Content-Length: 5\r\n\r\nhello",
		"POST /ok HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
		"POST /ok HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		get + host + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n" + inner,
		get + host + "Expect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
		"GET http://api.test/ok?x HTTP/1.1\r\n" + host + "\r\n" + inner + get + host + "\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, s, allowed, _ := sendThrough(t, text, 50*time.Millisecond)
		checkOnlyJudged(t, text, s, allowed)
		for _, q := range s.requests {
			if m, rest, _ := strings.Cut(q, " "); m != "GET" && m != "POST" || !strings.HasPrefix(rest, "api.test /ok") {
				t.Errorf("%q: the server saw %q", text, q)
			}
		}
	})
}
