package egress

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// openRaw returns a guest's connection for HTTP/1 as text.
func (l *lab) openRaw() net.Conn {
	c := l.connect()
	if l.secure {
		c = tls.Client(c, &tls.Config{RootCAs: l.trust(), ServerName: labHost, NextProtos: []string{"http/1.1"}})
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// A guest still sends its request when the proxy refuses it. The connection must not be reset, or
// the guest may lose the refusal. The guest receives one response, and its end shows where it ends.
func TestRefusalReachesGuestThatStillSends(t *testing.T) {
	var names, trailers strings.Builder
	for i := range 7000 {
		fmt.Fprintf(&names, "T-%d,", i)
		fmt.Fprintf(&trailers, "T-%d: x\r\n", i)
	}
	const post = "POST /%s HTTP/1.1\r\nHost: api.test\r\n"
	chunk := fmt.Sprintf("7000\r\n%s\r\n", strings.Repeat("x", 0x7000))
	for _, c := range []struct {
		name, head, rest string
		status           int
	}{
		{"too many trailers", fmt.Sprintf(post, "") + "Transfer-Encoding: chunked\r\nTrailer: " + names.String() + "end\r\n\r\n4\r\nbody\r\n0\r\n",
			trailers.String() + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		{"a path that no rule allows", fmt.Sprintf(post, "a/../b") + "Content-Length: 400000\r\n\r\n", strings.Repeat("x", 400_000), http.StatusBadRequest},
		{"the same in chunks", fmt.Sprintf(post, "a/../b") + "Transfer-Encoding: chunked\r\n\r\n", strings.Repeat(chunk, 15) + "0\r\n\r\n", http.StatusBadRequest},
		{"its last request", fmt.Sprintf(post, "a/../b") + "Connection: close\r\nContent-Length: 400000\r\n\r\n", strings.Repeat("x", 400_000), http.StatusBadRequest},
		{"an invalid header", fmt.Sprintf(post, "") + " folded\r\n", "\r\n" + strings.Repeat("x", 100_000), http.StatusBadRequest},
		{"a long header", fmt.Sprintf(post, "") + strings.Repeat("A: b\r\n", 15_000), strings.Repeat("A: b\r\n", 15_000) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		{"no memory", fmt.Sprintf(post, "") + "Content-Length: 100000\r\n\r\n", strings.Repeat("x", 100_000), http.StatusServiceUnavailable},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,secure=%t", c.name, secure), func(t *testing.T) {
				t.Parallel()
				l := newLab(t, secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
				if c.status == http.StatusServiceUnavailable {
					l.secrets = func() []Secret { // they are read before the request is charged
						l.budget.mu.Lock()
						defer l.budget.mu.Unlock()
						l.budget.used = l.budget.limit
						return nil
					}
				}
				conn := l.openRaw()
				begun := time.Now()
				if _, err := io.WriteString(conn, c.head); err != nil {
					t.Fatal(err)
				}
				const parts = 10
				for i := range parts {
					time.Sleep(20 * time.Millisecond)
					if _, err := io.WriteString(conn, c.rest[i*len(c.rest)/parts:(i+1)*len(c.rest)/parts]); err != nil {
						t.Fatalf("part %d of the request: %v", i, err)
					}
				}
				in := bufio.NewReader(conn)
				res, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(res.Body)
				if err != nil || res.StatusCode != c.status || len(text) == 0 {
					t.Errorf("%d %q %v", res.StatusCode, text, err)
				}
				if res.ContentLength < 0 && strings.HasPrefix(string(text), "brig: ") {
					t.Errorf("%d %q has no length", res.StatusCode, text)
				}
				if rest, err := io.ReadAll(in); len(rest) > 0 {
					t.Errorf("after the refusal: %.300q %v, %v", rest, err, time.Since(begun))
				}
			})
		}
	}
}
