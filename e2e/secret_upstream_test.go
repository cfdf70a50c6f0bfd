package e2e

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"
)

// Hosts of the scenarios. The secret is bound to the first; connections to both
// are allowed.
const (
	boundHost = "api.brig-test.com"
	otherHost = "other.brig-test.com"
)

// reflector serves both hosts. The host to which the secret is bound returns the secret's value
// in the encoding that the path specifies. The other host echoes the request.
type reflector struct {
	mu             sync.Mutex
	value          string
	got            map[string]*bytes.Buffer // all received data, by host
	duringResponse func()                   // called in the middle of a slow response
}

func newReflector(t *testing.T, addr, cert, key string) *reflector {
	t.Helper()
	u := &reflector{got: map[string]*bytes.Buffer{}}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range []string{"80", "443"} {
		srv := httptest.NewUnstartedServer(u)
		if err := srv.Listener.Close(); err != nil {
			t.Fatal(err)
		}
		if srv.Listener, err = net.Listen("tcp", net.JoinHostPort(addr, port)); err != nil {
			t.Fatal(err)
		}
		if port == "80" {
			srv.Start()
		} else {
			srv.TLS, srv.EnableHTTP2 = &tls.Config{Certificates: []tls.Certificate{pair}}, true
			srv.StartTLS()
		}
		t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	}
	return u
}

// begin sets the secret's value and discards the received data.
func (u *reflector) begin(value string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.value, u.duringResponse = value, nil
	clear(u.got)
}

// received returns the data that a host has received since the last call of begin.
func (u *reflector) received(host string) []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	if b := u.got[host]; b != nil {
		return bytes.Clone(b.Bytes())
	}
	return nil
}

func (u *reflector) recordRequest(r *http.Request) (key string) {
	head, _ := httputil.DumpRequest(r, false)
	body, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	defer u.mu.Unlock()
	b := u.got[r.Host]
	if b == nil {
		b = &bytes.Buffer{}
		u.got[r.Host] = b
	}
	fmt.Fprintf(b, "%s%s%v", head, body, r.Trailer)
	if _, pass, ok := r.BasicAuth(); ok {
		b.WriteString(pass)
	}
	if r.Host == boundHost && r.URL.Path != "/mirror" {
		return u.value
	}
	return string(head) + string(body)
}

// encodings maps names to functions that encode a value in a body.
var encodings = map[string]func(string) string{
	"plain":   func(s string) string { return s },
	"percent": func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") },
	"every":   func(s string) string { return formatEach(s, "%%%02x") },
	"jsonu":   func(s string) string { return `{"key":"` + formatEach(s, `\u%04x`) + `"}` },
	"entity":  func(s string) string { return "<p>" + formatEach(s, "&#%d;") + "</p>" + html.EscapeString(s) },
	"quoted":  func(s string) string { return formatEach(s, "=%02X") },
	"octets":  func(s string) string { return formatEach(s, `\x%02x`) },
	"base64":  func(s string) string { return base64.StdEncoding.EncodeToString([]byte("user:" + s + "\n")) },
	"url64":   func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"hex": func(s string) string {
		return hex.EncodeToString([]byte(s)) + strings.ToUpper(hex.EncodeToString([]byte(s)))
	},
	"dump": func(s string) string { return strings.TrimSpace(formatEach(s, "%02x ")) },
	"mime": func(s string) string {
		c := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 40) + s + strings.Repeat("y", 40)))
		return c[:76] + "\r\n" + c[76:]
	},
	"utf16": func(s string) string {
		var b strings.Builder
		for _, u := range utf16.Encode([]rune(s)) {
			b.Write([]byte{byte(u), byte(u >> 8)})
		}
		return b.String()
	},
	"multipart": func(s string) string {
		return "--b\r\nContent-Type: text/plain\r\n\r\n" + s + "\r\n--b\r\nContent-Range: bytes 0-3/9\r\n\r\n" + s + "\r\n--b--\r\n"
	},
	"events": func(s string) string { return "event: key\ndata: " + s + "\n\ndata: " + s + "\n\n" },
}

func formatEach(s, format string) (out string) {
	for _, c := range []byte(s) {
		out += fmt.Sprintf(format, c)
	}
	return out
}

func (u *reflector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := u.recordRequest(r)
	flush := func() { _ = http.NewResponseController(w).Flush() }
	how := strings.Trim(r.URL.Path, "/")
	if encode := encodings[how]; encode != nil {
		_, _ = io.WriteString(w, encode(key))
		return
	}
	h := w.Header()
	switch how {
	case "mirror":
		_, _ = io.WriteString(w, key)
	case "header":
		h.Set("X-Echo", key)
		h.Set("X-Coded", base64.StdEncoding.EncodeToString([]byte(key)))
		h.Set("Etag", `"`+key+`"`)
		h.Set("Content-Disposition", `attachment; filename="`+url.PathEscape(key)+`"`)
	case "cookie":
		h.Set("Set-Cookie", "session="+key+"; Path=/")
	case "hints":
		h.Set("Link", "</"+url.PathEscape(key)+">; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
	case "away":
		h.Set("Location", "https://"+otherHost+"/plain?k="+url.QueryEscape(key))
		w.WriteHeader(http.StatusTemporaryRedirect)
	case "back":
		h.Set("Location", "https://"+boundHost+"/plain")
		w.WriteHeader(http.StatusFound)
	case "error":
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintf(w, "<h1>no such key: %s</h1>", key)
	case "bytes":
		for _, c := range []byte(key) {
			_, _ = w.Write([]byte{c})
			flush()
		}
	case "gzip":
		h.Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, key)
		_ = z.Close()
	case "deflate":
		h.Set("Content-Encoding", "deflate")
		z, _ := flate.NewWriter(w, 5)
		_, _ = io.WriteString(z, key)
		_ = z.Close()
	case "br": // an uncompressed meta-block, the simplest valid Brotli stream
		h.Set("Content-Encoding", "br")
		_, _ = w.Write(append([]byte{0x0b, byte(len(key) / 2), 0x80}, key...))
	case "trailer":
		h.Set("Trailer", "X-Key")
		_, _ = io.WriteString(w, "body")
		h.Set("X-Key", key)
	case "range":
		from, to := 0, len(key)
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err == nil {
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = io.WriteString(w, key[min(from, len(key)):min(to+1, len(key))])
	case "cut":
		h.Set("Content-Length", "1000")
		_, _ = io.WriteString(w, key[:len(key)*3/4])
		flush()
		panic(http.ErrAbortHandler)
	case "slow":
		_, _ = io.WriteString(w, "<"+key+"><"+key[:9])
		flush()
		u.mu.Lock()
		during := u.duringResponse
		u.mu.Unlock()
		if during != nil {
			during()
		}
		_, _ = io.WriteString(w, key[9:]+">")
	case "socket":
		u.talk(w, r, key)
	}
}

// talk sends a value over a WebSocket, in one frame or in one frame per byte.
func (u *reflector) talk(w http.ResponseWriter, r *http.Request, key string) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * promptTimeout))
	out := bufio.NewWriter(conn)
	fmt.Fprintf(out, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
	if r.URL.RawQuery == "frames" {
		for i := range len(key) {
			_, _ = out.Write([]byte{map[bool]byte{true: 1}[i == 0], 1, key[i]})
		}
		_, _ = out.Write([]byte{0x80, 0})
	} else {
		_, _ = out.Write(append([]byte{0x81, byte(len(key))}, key...))
	}
	_ = out.Flush()
	_, _ = buf.ReadByte()
}
