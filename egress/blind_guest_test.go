package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// channel is a way in which a host can echo a guess.
type channel struct {
	path         string
	how          string // "h1", "h2" or "ws"
	method       string // default GET
	form         string // the encoding of the guess, see formOf; default as it is
	secondSecret bool   // the host has another secret, whose value is a prefix of the right guesses
	held         bool   // the previous hold-back algorithm is detected here, too
}

func (c channel) String() string {
	name := map[string]string{"h1": "HTTP/1.1", "h2": "HTTP/2", "ws": "WebSocket"}[c.how] + " " + c.path[1:]
	if c.form != "" {
		name += ", " + c.form
	}
	if c.secondSecret {
		name += ", two secrets"
	}
	return name
}

// formOf encodes a guess in a form that hosts may use.
func formOf(form, guess string) string {
	each := func(format string) string {
		var b strings.Builder
		for _, c := range []byte(guess) {
			fmt.Fprintf(&b, format, c)
		}
		return b.String()
	}
	switch form {
	case "base64":
		return base64.StdEncoding.EncodeToString([]byte(guess))
	case "base64 after 1":
		return base64.StdEncoding.EncodeToString([]byte("x" + guess))
	case "base64 after 2":
		return base64.StdEncoding.EncodeToString([]byte("xy" + guess))
	case "hex":
		return each("%02x")
	case "percent":
		return each("%%%02X")
	case "JSON":
		return each(`\u%04x`)
	case "HTML":
		return each("&#%d;")
	case "UTF-16":
		return each("%c\x00")
	}
	return guess
}

// values returns the two values to guess. Both consist of the same characters, and a partly right
// guess for one value is wrong for the other.
func (c channel) values() [2]string {
	at := 0
	if c.secondSecret {
		at = secondLength
	}
	return [2]string{guessed, guessed[:at] + guessed[at+1:at+2] + guessed[at:at+1] + guessed[at+2:]}
}

// secondLength is the length of the prefix that is the other secret's value.
const secondLength = 8

// seen holds the times and the length that a guest observes of a response.
type seen struct{ first, whole, length float64 }

// guessFunc sends a guess, and observes the response that echoes it.
type guessFunc func(guess string) seen

// newGuesser returns the function with which a guest sends guesses to a host that
// has one of the channel's values. The control "slow" delays responses to
// partly right guesses, and "held" holds back text that may be the start of the
// value.
func (c channel) newGuesser(t *testing.T, value, control string, slow time.Duration) guessFunc {
	var handler http.Handler = http.HandlerFunc(echoGuess)
	if c.how == "ws" {
		handler = webSocket(t, guessOverSocket)
	}
	l := newLab(t, c.how == "h2", handler)
	s := key(brig.SecretHeader, brig.SecretQuery, brig.SecretBody)
	s.Plain = true
	s.Value = func(context.Context) ([]byte, error) { return []byte(value), nil }
	l.keys = []Secret{s}
	if c.secondSecret {
		s.Name, s.Placeholder = "second", "brig-secret-abcdefghij"
		s.Value = func(context.Context) ([]byte, error) { return []byte(value[:secondLength]), nil }
		l.keys = append(l.keys, s)
	}
	l.report = func(Event) {}
	near := formOf(c.form, value[:6])
	switch {
	case c.secondSecret:
		near = value[:secondLength+2]
	case c.path == "/shared": // the response contains the value, too
		near = "<" + near
	case strings.HasPrefix(c.form, "base64"): // without the characters that depend on the next byte
		near = near[:4]
	}
	spin := func(text []byte) {
		if !bytes.Contains(bytes.ToLower(text), bytes.ToLower([]byte(near))) {
			return
		}
		if slow >= time.Millisecond {
			time.Sleep(slow)
			return
		}
		for begun := time.Now(); time.Since(begun) < slow; { // too short for time.Sleep
		}
	}
	switch control {
	case "slow":
		l.valuesSent.seen = spin
		if c.path == "/request" {
			judge := l.judge
			l.judge = func(host string, port int, q brig.Request) (brig.Verdict, int) {
				spin([]byte(q.Path))
				return judge(host, port, q)
			}
		}
	case "held":
		old := newSwaps([]swap{{old: []byte(value), new: []byte(placeholder)}})
		l.scrubbing = func(src io.Reader) io.Reader { return old.newReader(src, nil) }
	}
	switch c.how {
	case "h2":
		return c.guessOverHTTP2(l)
	case "ws":
		return c.guessOverWebSocket(l)
	}
	return c.guessOverHTTP1(l)
}

// target returns the path of the request, and the body.
func (c channel) target(guess string) (path, body string) {
	if c.path == "/request" {
		return "/request/" + guess + "?k=" + placeholder + "&g=" + guess, guess + placeholder + guess
	}
	return c.path + "?g=" + url.QueryEscape(guess), ""
}

// watch reads a body. first is the time at which the first bytes after the prefix of the guess
// arrive.
func watch(body io.Reader, since func() float64) (first float64, n int) {
	var buf [32 << 10]byte
	for {
		k, err := body.Read(buf[:])
		if n <= 6 && n+k > 6 {
			first = since()
		}
		if n += k; err != nil {
			return first, n
		}
	}
}

func headerSize(h http.Header) (n int) {
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

func (c channel) guessOverHTTP2(l *lab) guessFunc {
	client := l.client(true)
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: l.trust()}
	return func(guess string) (s seen) {
		path, body := c.target(guess)
		r := l.request(c.method, path, strings.NewReader(body))
		r.Header.Set("Authorization", placeholder)
		r.Header.Set("Range", "bytes=0-3")
		begun := time.Now()
		since := func() float64 { return float64(time.Since(begun).Nanoseconds()) }
		res, err := client.Do(r)
		s.first, s.whole = since(), since()
		if err != nil {
			return s
		}
		defer res.Body.Close()
		first, n := watch(res.Body, since)
		s.first, s.whole = max(s.first, first), since()
		s.length = float64(n + headerSize(res.Header) + headerSize(res.Trailer))
		return s
	}
}

// meteredConn counts the bytes that are read from a connection.
type meteredConn struct {
	net.Conn
	n int
}

func (m *meteredConn) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	m.n += n
	return n, err
}

// guessOverHTTP1 counts all received bytes, including chunk headers.
func (c channel) guessOverHTTP1(l *lab) guessFunc {
	var conn *meteredConn
	var r *bufio.Reader
	method := c.method
	if method == "" {
		method = http.MethodGet
	}
	return func(guess string) (s seen) {
		if conn == nil {
			conn = &meteredConn{Conn: l.connect()}
			r = bufio.NewReader(conn)
		}
		before := conn.n
		path, body := c.target(guess)
		begun := time.Now()
		since := func() float64 { return float64(time.Since(begun).Nanoseconds()) }
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nRange: bytes=0-3\r\nContent-Length: %d\r\n\r\n%s",
			method, path, labHost, placeholder, len(body), body)
		for hints := true; hints; {
			res, err := http.ReadResponse(r, &http.Request{Method: method})
			s.first, s.whole = since(), since()
			if err != nil {
				if c.path != "/abort" {
					l.t.Fatal(c, err)
				}
				break
			}
			if hints = res.StatusCode == http.StatusEarlyHints; hints {
				continue
			}
			first, _ := watch(res.Body, since)
			s.first, s.whole = max(s.first, first), since()
		}
		s.length = float64(conn.n - before)
		if c.path == "/abort" {
			conn.Close()
			conn = nil
		}
		return s
	}
}

func (c channel) guessOverWebSocket(l *lab) guessFunc {
	var conn net.Conn
	var r *bufio.Reader
	return func(guess string) (s seen) {
		if conn == nil {
			var res *http.Response
			if conn, r, res = l.openWebSocket(c.path, placeholder); res.StatusCode != http.StatusSwitchingProtocols {
				l.t.Fatal(res.Status)
			}
			conn.SetDeadline(time.Now().Add(6 * time.Hour))
		}
		begun := time.Now()
		since := func() float64 { return float64(time.Since(begun).Nanoseconds()) }
		io.WriteString(conn, guess+"\n")
		for frames := 1; frames > 0; frames-- {
			head, _ := r.Peek(2)
			if s.first == 0 || c.path == "/half" { // the second part is not sent there
				s.first = since()
			}
			if len(head) < 2 {
				break
			}
			opcode := head[0]
			n, _ := r.Discard(2 + int(head[1]))
			s.length += float64(n)
			switch {
			case c.path == "/half":
				frames = 2 // until the connection is closed
			case opcode == 0x01:
				frames += 2
			}
		}
		s.whole = since()
		if c.path == "/half" {
			conn.Close()
			conn = nil
		}
		return s
	}
}
