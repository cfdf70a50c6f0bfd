package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig/internal/attack"
)

// The length of a compressed response reveals whether the guest's text also
// occurs elsewhere in it, next to the value. No header field of a response
// without a body reveals that length.
func TestCompressedLengthIsNotRevealed(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		fmt.Fprintf(z, "you are %s and ask for %s", r.Header.Get("Authorization"), r.URL.Query().Get("g"))
		z.Close()
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
		switch r.URL.Path {
		case "/unchanged":
			w.WriteHeader(http.StatusNotModified)
		case "/part":
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", b.Len()-1, b.Len()))
			w.WriteHeader(http.StatusPartialContent)
		}
		if r.Method != http.MethodHead && r.URL.Path != "/unchanged" {
			w.Write(b.Bytes())
		}
	})
	length := func(l *lab, c *http.Client, method, path, authorization, guess string) int {
		r := l.request(method, path+"?g="+guess, nil)
		r.Header.Set("Authorization", authorization)
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(path, err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body) // the HTTP/2 client reports a missing body for a 304 response
		var head strings.Builder
		res.Header.Write(&head)
		announced, _ := strconv.Atoi(res.Header.Get("Content-Length"))
		return head.Len() + len(body) + announced
	}
	for _, h2 := range []bool{false, true} {
		for _, c := range []struct{ method, path string }{{"HEAD", "/"}, {"GET", "/unchanged"}, {"HEAD", "/part"}, {"GET", "/part"}} {
			if c.path == "/unchanged" && !h2 {
				continue // a Go server sends no length there
			}
			name := fmt.Sprintf("%s %s, h2 %t", c.method, c.path, h2)
			l := newLab(t, true, handler)
			s := key()
			s.Value = func(context.Context) ([]byte, error) { return []byte(guessed), nil }
			l.keys = []Secret{s}
			client := l.client(h2)
			right, other := guessed[:20], wrongGuess(20)
			one, two := length(l, client, c.method, c.path, placeholder, right), length(l, client, c.method, c.path, placeholder, other)
			if one != two {
				t.Errorf("%s: %d bytes, %d for a wrong guess", name, one, two)
			}
			attack.RecordCase("SEC-03", "guesses, by compressed lengths: "+name, one != two)
			// Control: without a secret for the host, a right and a wrong guess differ in length.
			// (For a whole response, the client receives the uncompressed length.)
			l = newLab(t, true, handler) // the last request may still use the previous one
			client = l.client(h2)
			one, two = length(l, client, c.method, c.path, guessed, right), length(l, client, c.method, c.path, guessed, other)
			if one == two {
				t.Errorf("%s, control: both are %d bytes", name, one)
			}
			attack.RecordMutant("SEC-03", "guesses, by compressed lengths: "+name, "leaving lengths out", one != two)
		}
	}
}

// Early hints do not contain digests of the response.
func TestEarlyHintsHaveNoDigest(t *testing.T) {
	l := newLab(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Md5", "of the value")
		w.Header().Set("X-Seen", r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "the answer")
	}))
	for _, brokered := range []bool{false, true} {
		if brokered {
			l.keys = []Secret{key()}
		}
		hints := 0
		r := l.request("GET", "/", nil)
		r.Header.Set("Authorization", placeholder)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
				hints++
				if (h.Get("Content-Md5") == "") != brokered || h.Get("X-Seen") != placeholder {
					t.Errorf("brokered %t: %v", brokered, h)
				}
				return nil
			},
		}))
		l.do(l.client(false), r)
		if hints != 1 {
			t.Errorf("%d hints", hints)
		}
	}
}

// A tenant sees the same events in the audit log for a partly right guess as
// for a wrong one. (Bytes are counted after the search, so the count is what
// the guest receives.)
func TestEventsIgnorePartialGuesses(t *testing.T) {
	l := newLab(t, true, http.HandlerFunc(echoGuess))
	s := key()
	s.Value = func(context.Context) ([]byte, error) { return []byte(guessed), nil }
	l.keys = []Secret{s}
	events := func(path, authorization, guess string) string {
		l.mu.Lock()
		l.events = nil
		l.mu.Unlock()
		for _, h2 := range []bool{false, true} {
			r := l.request("GET", path+"?g="+guess, strings.NewReader(guess))
			r.Header.Set("Authorization", authorization)
			if res, err := l.client(h2).Do(r); err == nil {
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		}
		var list []string
		for _, e := range l.eventsSoFar() {
			e.At = time.Time{}
			list = append(list, fmt.Sprintf("%+v", e))
		}
		return strings.Join(list, "\n")
	}
	for _, path := range []string{"/chunked", "/abort", "/error", "/trailer", "/redirect", "/grpc", "/gzip", "/name", "/unchanged"} {
		right, other := events(path, placeholder, guessed[:20]), events(path, placeholder, wrongGuess(20))
		if right != other || right == "" {
			t.Errorf("%s: %s\nbut for a wrong guess\n%s", path, right, other)
		}
		if used := events(path, "none", guessed[:20]); used == right {
			t.Errorf("%s, control: a request without the secret leaves the same: %s", path, used)
		}
	}
}
