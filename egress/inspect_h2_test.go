package egress

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// encodeFrame returns an HTTP/2 frame on stream 1, or on stream 0 for settings.
func encodeFrame(kind, flags byte, payload string) string {
	stream := uint32(1)
	if kind == 4 {
		stream = 0
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))[1:]
	b = append(b, kind, flags)
	return string(binary.BigEndian.AppendUint32(b, stream)) + payload
}

// encodeFields encodes header fields without compression. The list alternates names
// and values.
func encodeFields(list ...string) string {
	var b strings.Builder
	for i, s := range list {
		if i%2 == 0 {
			b.WriteByte(0) // literal, without indexing, with a new name
		}
		b.WriteByte(byte(len(s)))
		b.WriteString(s)
	}
	return b.String()
}

func TestAmbiguousHTTP2RequestsAreRejected(t *testing.T) {
	const settings, headers, data, endStream, endHeaders = 4, 1, 0, 1, 4
	whole := func(list ...string) string { return encodeFrame(headers, endStream|endHeaders, encodeFields(list...)) }
	open := func(list ...string) string { return encodeFrame(headers, endHeaders, encodeFields(list...)) }
	ok := []string{":method", "GET", ":scheme", "https", ":authority", labHost, ":path", "/ok"}
	with := func(more ...string) []string { return append(append([]string(nil), ok...), more...) }
	requestFields := func(path, authority string) []string {
		return []string{":method", "GET", ":scheme", "https", ":authority", authority, ":path", path}
	}
	for _, c := range []struct {
		name, frames string
		want         int // number of requests that the server receives
	}{
		{"control", whole(ok...), 1},
		{"control: a body", open(with("content-length", "5")...) + encodeFrame(data, endStream, "hello"), 1},
		{"control: the host twice", whole(with("host", labHost)...), 1},
		{"another host beside the authority", whole(with("host", "evil.test")...), 0},
		{"two hosts", whole(with("host", labHost, "host", "evil.test")...), 0},
		{"another authority", whole(requestFields("/ok", "evil.test")...), 0},
		{"no authority, another host", whole(":method", "GET", ":scheme", "https", ":path", "/ok", "host", "evil.test"), 0},
		{"no host", whole(":method", "GET", ":scheme", "https", ":path", "/ok"), 0},
		{"a user", whole(requestFields("/ok", "x@"+labHost)...), 0},
		{"absolute, another host", whole(requestFields("https://evil.test/ok", labHost)...), 0},
		{"absolute, another scheme", whole(requestFields("http://api.test/ok", labHost)...), 0},
		{"absolute, a user", whole(requestFields("https://x@api.test/ok", labHost)...), 0},
		{"no slash", whole(requestFields("ok", labHost)...), 0},
		{"a star", whole(requestFields("*", labHost)...), 0},
		{"an empty path", whole(requestFields("", labHost)...), 0},
		{"a line in the path", whole(requestFields("/ok HTTP/1.1\r\nX: y", labHost)...), 0},
		{"a fragment", whole(requestFields("/ok#x", labHost)...), 0},
		{"a line in a value", whole(with("x-a", "b\r\nx-c: d")...), 0},
		{"NUL in a value", whole(with("x-a", "b\x00c")...), 0},
		{"a colon in a name", whole(with("x-a: b", "c")...), 0},
		{"a line in a name", whole(with("x-a\r\nb", "c")...), 0},
		{"capitals in a name", whole(with("X-A", "b")...), 0},
		{"a coding", open(with("transfer-encoding", "chunked")...) + encodeFrame(data, endStream, "0\r\n\r\n"+inner), 0},
		{"a connection", whole(with("connection", "upgrade", "upgrade", "websocket")...), 0},
		{"two lengths", open(with("content-length", "5", "content-length", "6")...) + encodeFrame(data, endStream, "hello"), 0},
		{"an invalid length", open(with("content-length", "x")...) + encodeFrame(data, endStream, "hello"), 0},
		{"an underscore", open(with("content_length", "0")...) + encodeFrame(data, endStream, inner), 0},
		{"a line in the method", whole(":method", "GET / HTTP/1.1\r\n\r\nGET", ":scheme", "https", ":authority", labHost, ":path", "/ok"), 0},
		{"CONNECT", whole(":method", "CONNECT", ":authority", labHost), 0},
		{"CONNECT for WebSocket", whole(":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", labHost, ":path", "/ok"), 0},
		{"two paths", whole(with(":path", "/smuggled")...), 0},
		{"a path after the fields", whole(append(with("x-a", "b"), ":path", "/smuggled")...), 0},
		{"an unknown pseudo field", whole(with(":x", "y")...), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.HasPrefix(c.name, "control") {
				attack.Case(t, "NET-11", "HTTP/2: "+c.name)
			}
			var mu sync.Mutex
			var seen []string
			l := newLab(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					seen = append(seen, r.Method+" "+r.Host+" "+r.RequestURI+" "+string(body))
				}
			}))
			l.rules.Rules = []brig.EgressRule{{Host: labHost, Methods: []string{"GET"}, Paths: []string{"/ok"}}}
			conn := tls.Client(l.connect(), &tls.Config{RootCAs: l.trust(), ServerName: labHost, NextProtos: []string{"h2"}})
			conn.SetDeadline(time.Now().Add(time.Minute))
			// The last request must be refused. Its response means that all
			// earlier ones have been checked.
			last := strings.ReplaceAll(whole(requestFields("/end", labHost)...), "\x00\x00\x00\x01", "\x00\x00\x00\x03")
			io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+encodeFrame(settings, 0, "")+c.frames+last)
			responses := 0
			for head := make([]byte, 9); responses < 2; {
				if _, err := io.ReadFull(conn, head); err != nil {
					break
				}
				body := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
				if _, err := io.ReadFull(conn, body); err != nil {
					break
				}
				if head[3] == 3 || head[3] == 7 || head[3] == headers { // a response or a reset
					responses++
				}
				if head[3] == 7 { // the server sent GOAWAY
					break
				}
			}
			conn.Close()
			l.over.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(seen) != c.want || c.want == 0 && l.dials.Load() > 0 {
				t.Errorf("the server saw %q, and was dialed %d times", seen, l.dials.Load())
			}
			for _, s := range seen {
				if !strings.HasPrefix(s, "GET api.test /ok ") {
					t.Errorf("the server saw %q", s)
				}
			}
			if responses == 0 {
				t.Error("nothing came back")
			}
		})
	}
}
