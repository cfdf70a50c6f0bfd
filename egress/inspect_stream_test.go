package egress

import (
	"bufio"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// Each line of a stream arrives before the next is requested, in both
// directions at the same time. This proves that bodies are not buffered.
func TestInspectStreamsBothWays(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for _, searched := range []bool{false, true} {
			t.Run(fmt.Sprintf("h2=%t,searched=%t", h2, searched), func(t *testing.T) {
				l := newLab(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					http.NewResponseController(w).EnableFullDuplex()
					if searched {
						w.Header().Set("Content-Type", "application/x-ndjson")
					} else { // a declared length does not cause buffering
						w.Header().Set("Content-Length", fmt.Sprint(5*len("data: line 0 of bri\n")))
					}
					w.WriteHeader(200)
					w.(http.Flusher).Flush()
					for in := bufio.NewScanner(r.Body); in.Scan(); {
						fmt.Fprintf(w, "data: %s\n", in.Text())
						w.(http.Flusher).Flush()
					}
				}))
				if searched {
					l.keys = []Secret{key(brig.SecretHeader, brig.SecretBody)}
				}
				body, feed := io.Pipe()
				res, err := l.client(h2).Do(l.request("POST", "/", body))
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				out := bufio.NewReader(res.Body)
				for i := range 5 {
					fmt.Fprintf(feed, "line %d of %s\n", i, placeholder[:3])
					if line, err := out.ReadString('\n'); err != nil || line != fmt.Sprintf("data: line %d of %s\n", i, placeholder[:3]) {
						t.Fatalf("%q %v", line, err)
					}
				}
				feed.Close()
				if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
					t.Errorf("%q %v", rest, err)
				}
			})
		}
	}
}

func TestTrailersAreForwarded(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		got := make(chan http.Header, 1)
		l := newLab(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "Grpc-Status")
			w.Header().Set("Te", r.Header.Get("Te"))
			io.Copy(w, r.Body)
			w.Header().Set("Grpc-Status", "0")
			w.Header().Set(http.TrailerPrefix+"Grpc-Message", "unannounced")
			got <- r.Trailer
		}))
		r := l.request("POST", "/", io.MultiReader(strings.NewReader("body")))
		r.Trailer = http.Header{"X-Sum": {"1"}, "X-Api-Key": {"mine"}}
		r.Header.Set("Te", "trailers")
		res, body := l.do(l.client(h2), r)
		if body != "body" || res.Trailer.Get("Grpc-Status") != "0" || res.Trailer.Get("Grpc-Message") != "unannounced" {
			t.Errorf("h2 %t: %q %v", h2, body, res.Trailer)
		}
		if in := <-got; in.Get("X-Sum") != "1" || in.Get("X-Api-Key") != "" {
			t.Errorf("h2 %t: the server has %v", h2, in)
		}
	}
}

func TestExpectContinueIsForwarded(t *testing.T) {
	t.Run("clear", func(t *testing.T) { checkContinue(t, false) })
	t.Run("tls", func(t *testing.T) { checkContinue(t, true) })
}

func checkContinue(t *testing.T, secure bool) {
	l := newLab(t, secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		io.Copy(w, r.Body)
	}))
	for path, want := range map[string][]int{"/yes": {100}, "/no": nil} {
		var codes []int
		r := l.request("POST", path, strings.NewReader("body"))
		r.Header.Set("Expect", "100-continue")
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { codes = append(codes, code); return nil },
		}))
		c := l.client(false)
		c.Transport.(*http.Transport).ExpectContinueTimeout = time.Hour
		res, body := l.do(c, r)
		// The proxy may not wait longer than a second for the server's 100, and then
		// passes it on after its own.
		if fmt.Sprint(slices.Compact(codes)) != fmt.Sprint(want) || path == "/yes" && body != "body" || path == "/no" && res.StatusCode != 417 {
			t.Errorf("%s: got 1xx responses %v, %s %q", path, codes, res.Status, body)
		}
	}
}

func TestEarlyHintsAreForwarded(t *testing.T) {
	l := newLab(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</"+r.Header.Get("Authorization")+">")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		io.WriteString(w, "done")
	}))
	l.keys = []Secret{key()}
	for _, h2 := range []bool{false, true} {
		var link string
		r := l.request("GET", "/", nil)
		r.Header.Set("Authorization", placeholder)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { link = h.Get("Link"); return nil },
		}))
		if _, body := l.do(l.client(h2), r); body != "done" || link != "</"+placeholder+">" {
			t.Errorf("h2 %t: %q, hint %q", h2, body, link)
		}
	}
}

// webSocket returns a handler that accepts WebSocket handshakes and passes the
// connections to talk.
func webSocket(t *testing.T, talk func(conn net.Conn, r *bufio.ReadWriter, q *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.ProtoMajor != 1 {
			http.Error(w, "no upgrade", http.StatusUpgradeRequired)
			return
		}
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		accept := base64.StdEncoding.EncodeToString(sum[:])
		if r.URL.Path == "/liar" {
			accept = "nothing"
		}
		fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\nX-Seen: %s|%s\r\n\r\n",
			accept, r.Header.Get("Authorization"), r.Header.Get("Sec-WebSocket-Extensions"))
		buf.Flush()
		talk(conn, buf, r)
	})
}

// openWebSocket sends a WebSocket handshake on a new connection.
func (l *lab) openWebSocket(path, authorization string) (net.Conn, *bufio.Reader, *http.Response) {
	l.t.Helper()
	conn := l.connect()
	if l.secure {
		conn = tls.Client(conn, &tls.Config{RootCAs: l.trust(), ServerName: labHost, NextProtos: []string{"http/1.1"}})
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: api.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\nAuthorization: %s\r\n\r\n", path, authorization)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return conn, r, res
}

func TestWebSocketMessagesAreForwarded(t *testing.T) {
	for _, secure := range []bool{false, true} {
		ended := make(chan string, 1)
		l := newLab(t, secure, webSocket(t, func(conn net.Conn, buf *bufio.ReadWriter, _ *http.Request) {
			for { // echo until the guest has sent all bytes
				line, err := buf.ReadString('\n')
				if err != nil {
					io.WriteString(conn, "last words")
					ended <- line
					return
				}
				io.WriteString(conn, line)
			}
		}))
		l.rules.Rules = []brig.EgressRule{{Host: labHost, Methods: []string{"GET"}, Paths: []string{"/chat", "/liar"}}}
		conn, r, res := l.openWebSocket("/chat", "x")
		if res.StatusCode != 101 || res.Header.Get("X-Seen") != "x|permessage-deflate" {
			t.Fatalf("%s %v", res.Status, res.Header)
		}
		for _, text := range []string{"hello\n", "\x81\x05 not HTTP\x00\r\r\n", inner[:strings.Index(inner, "\n")+1]} {
			io.WriteString(conn, text)
			got := make([]byte, len(text))
			if _, err := io.ReadFull(r, got); err != nil || string(got) != text {
				t.Fatalf("%q %v", got, err)
			}
		}
		io.WriteString(conn, "half")
		conn.(interface{ CloseWrite() error }).CloseWrite()
		if rest, err := io.ReadAll(r); err != nil || string(rest) != "last words" {
			t.Errorf("after half was closed: %q %v", rest, err)
		}
		if got := <-ended; got != "half" {
			t.Errorf("the server had %q", got)
		}
		if e := l.lastEvent(Request); !e.Allowed || e.Path != "/chat" {
			t.Errorf("%+v", e)
		}

		if _, _, res := l.openWebSocket("/other", "x"); res.StatusCode != 403 {
			t.Errorf("a handshake that no rule allows: %s", res.Status)
		}
		if _, _, res := l.openWebSocket("/liar", "x"); res.StatusCode != 502 {
			t.Errorf("a server that does not speak WebSocket: %s", res.Status)
		}
	}
}

func TestWebSocketEndsWithContext(t *testing.T) {
	ended := make(chan struct{})
	l := newLab(t, true, webSocket(t, func(conn net.Conn, _ *bufio.ReadWriter, _ *http.Request) {
		io.Copy(io.Discard, conn)
		close(ended)
	}))
	_, r, res := l.openWebSocket("/", "x")
	if res.StatusCode != 101 {
		t.Fatal(res.Status)
	}
	l.stop()
	if _, err := r.ReadByte(); err == nil {
		t.Error("the guest's end is open")
	}
	<-ended
	l.over.Wait()
}

func TestWebSocketEndsBeforeSecretIsRevealed(t *testing.T) {
	talk := func(conn net.Conn, _ *bufio.ReadWriter, q *http.Request) {
		frame := func(first byte, text string) { conn.Write(append([]byte{first, byte(len(text))}, text...)) }
		frame(0x81, "before")
		key := "it is " + q.Header.Get("Authorization") + "!"
		switch q.URL.Path {
		case "/echo":
			frame(0x81, key)
		case "/bytes": // one byte per write
			for _, c := range append([]byte{0x82, byte(len(key))}, key...) {
				conn.Write([]byte{c})
			}
		case "/frames": // one frame per byte, with control frames between them
			for i, c := range []byte(key) {
				frame(map[bool]byte{true: 1}[i == 0], string([]byte{c}))
				frame(0x89, "ping")
				frame(0, "")
			}
			frame(0x80, "")
		case "/long":
			text := strings.Repeat("x", 60<<10) + key
			conn.Write(append(binary.BigEndian.AppendUint64([]byte{1, 127}, uint64(len(text))), text...))
			frame(0x80, "")
		case "/ping":
			frame(0x89, key)
		case "/packed": // as if an extension had been negotiated
			frame(0xc1, "before")
		case "/masked":
			conn.Write([]byte{0x81, 0x81, 1, 2, 3, 4, 5})
		case "/ends": // ends within the value
			frame(0x81, key[:len("it is ")+3])
		}
		frame(0x81, "after")
	}
	for path, want := range map[string]string{
		"/": "before..after", "/ends": "before..it is sk-..after", "/echo": "before..it is ", "/bytes": "before..it is ",
		"/frames": "before", "/long": "before", "/ping": "before..it is ", "/packed": "before", "/masked": "before",
	} {
		l := newLab(t, true, webSocket(t, talk))
		l.keys = []Secret{key()}
		_, r, res := l.openWebSocket(path, placeholder)
		if seen := res.Header.Get("X-Seen"); res.StatusCode != 101 || seen != placeholder+"|" {
			t.Errorf("%s, %q", res.Status, seen)
		}
		got, _ := io.ReadAll(r)
		bare := regexp.MustCompile(`[^ -~]+`).ReplaceAllString(string(got), "")
		leaks := strings.Contains(bare, value[:5]) || strings.Contains(strings.ReplaceAll(bare, "ping", ""), value[:5])
		whole := strings.HasSuffix(want, "after")
		if leaks || whole != strings.HasSuffix(bare, "after") || !strings.HasPrefix(bare, "before") {
			t.Errorf("%s: the guest had %q, want %q", path, got, want)
		}
		attack.RecordCase("SEC-03", "WebSocket "+path, leaks)
	}
	// As a control, the value arrives without the secret.
	for _, path := range []string{"/echo", "/bytes", "/frames", "/ping"} {
		l := newLab(t, true, webSocket(t, talk))
		_, r, _ := l.openWebSocket(path, value)
		got, _ := io.ReadAll(r)
		bare := strings.ReplaceAll(regexp.MustCompile(`[^ -~]+`).ReplaceAllString(string(got), ""), "ping", "")
		if !strings.Contains(bare, value[:5]) {
			t.Errorf("%s: %q", path, got)
		}
		attack.RecordMutant("SEC-03", "WebSocket "+path, "the scrubber", strings.Contains(bare, value[:5]))
	}
}
