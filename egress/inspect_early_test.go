package egress

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A host responds before it has received the request's body, and the guest then sends no more of
// the body. The guest receives the complete response, and the connection to the host is released.
func TestEarlyResponseReachesGuestWithUnsentBody(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"/refused", "413 too large <nil>"},
		{"/accepted", "200 enough <nil>"},
		{"/abort", "200 so far "},
		{"/silent", "502 brig: there is no answer"}, // net/http's client for HTTP/1 would wait for the body
	} {
		for _, host := range []string{"h1", "h1s", "h2"} {
			for _, guest := range []string{"h1", "h2"} {
				if host == "h1" && guest == "h2" {
					continue // without TLS there is no HTTP/2
				}
				t.Run(fmt.Sprintf("%s,host=%s,guest=%s", c.path, host, guest), func(t *testing.T) {
					l := newLabOf(t, host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						switch r.URL.Path {
						case "/refused":
							w.WriteHeader(413)
							w.(http.Flusher).Flush()
							time.Sleep(pause) // net/http's client gives up the request's body before the response's arrives
							io.WriteString(w, "too large")
						case "/accepted":
							io.WriteString(w, "enough")
						case "/abort":
							io.WriteString(w, "so far")
							w.(http.Flusher).Flush()
							panic(http.ErrAbortHandler)
						case "/silent":
							panic(http.ErrAbortHandler)
						}
					}))
					body, feed := io.Pipe()
					defer feed.Close()
					go io.WriteString(feed, "the first part")
					r := l.request("POST", c.path, body)
					r.ContentLength = 1 << 20
					ended := make(chan string, 1)
					go func() {
						res, err := l.client(guest == "h2").Do(r)
						if err != nil {
							ended <- err.Error()
							return
						}
						defer res.Body.Close()
						text, err := io.ReadAll(res.Body)
						ended <- fmt.Sprint(res.StatusCode, " ", strings.TrimSpace(string(text)), " ", err)
					}()
					select {
					case got := <-ended:
						if !strings.HasPrefix(got, c.want) {
							t.Errorf("%s, want %s", got, c.want)
						}
					case <-time.After(time.Minute):
						t.Fatal("the guest still waits for the end of the response")
					}
				})
			}
		}
	}
}

// A guest that sends the rest of a body after an early response can use its connection again, and
// no part of the body is parsed as a request.
func TestRestOfBodyAfterEarlyResponseIsNoRequest(t *testing.T) {
	const hidden = "GET /hidden HTTP/1.1\r\nHost: api.test\r\n\r\n"
	bodies := map[string]struct{ head, first, rest string }{
		"length": {fmt.Sprintf("Content-Length: %d\r\n\r\n", 5+2*len(hidden)), "first", hidden + hidden},
		"chunks": {"Transfer-Encoding: chunked\r\n\r\n", "5\r\nfirst\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(hidden), hidden)},
	}
	for name, body := range bodies {
		for _, host := range []string{"h1", "h1s", "h2"} {
			for _, late := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s,host=%s,late=%t", name, host, late), func(t *testing.T) {
					l := newLabOf(t, host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						answer := "answer to " + r.URL.Path
						w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
						if r.URL.Path == "/early" {
							http.NewResponseController(w).EnableFullDuplex() // otherwise HTTP/1 reads the body first
							io.WriteString(w, answer)
							w.(http.Flusher).Flush()
							if host == "h2" {
								return
							}
						}
						io.Copy(io.Discard, r.Body) // net/http panics if it has to do that in full duplex
						io.WriteString(w, answer)
					}))
					c := l.connect()
					if l.secure {
						c = tls.Client(c, &tls.Config{RootCAs: l.trust(), ServerName: labHost})
					}
					c.SetDeadline(time.Now().Add(time.Minute))
					in := bufio.NewReader(c)
					read := func() (string, error) {
						res, err := http.ReadResponse(in, nil)
						if err != nil {
							return "", err
						}
						text, err := io.ReadAll(res.Body)
						return fmt.Sprint(res.StatusCode, " ", string(text)), err
					}
					io.WriteString(c, "POST /early HTTP/1.1\r\nHost: api.test\r\n"+body.head+body.first)
					if late { // the proxy does not wait for the rest so long
						if got, err := read(); err != nil || got != "200 answer to /early" {
							t.Fatalf("%q %v", got, err)
						}
						time.Sleep(restTimeout + 500*time.Millisecond)
					}
					io.WriteString(c, body.rest+"GET /next HTTP/1.1\r\nHost: api.test\r\n\r\n")
					if !late {
						if got, err := read(); err != nil || got != "200 answer to /early" {
							t.Fatalf("%q %v", got, err)
						}
					}
					// After a long time the connection has ended.
					if got, err := read(); got != "200 answer to /next" && !(late && err != nil && got == "") {
						t.Errorf("the next request: %q %v", got, err)
					}
					for _, e := range l.eventsSoFar() {
						if e.Kind == Request && strings.Contains(fmt.Sprintf("%+v", e), "/hidden") {
							t.Errorf("the body was taken for a request: %+v", e)
						}
					}
				})
			}
		}
	}
}
