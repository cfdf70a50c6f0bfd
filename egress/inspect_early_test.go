package egress

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A host responds before it has the request's body, and the guest then sends
// no more of it. The guest receives the complete response, and the connection
// to the host is released.
func TestInspectEarlyResponse(t *testing.T) {
	for _, c := range []struct {
		path       string
		host, want string // host: the only protocol that is tried
	}{
		{"/refused", "", "413 too large <nil>"},
		{"/accepted", "", "200 enough <nil>"},
		{"/abort", "", "200 so far "},
		// net/http's client for HTTP/1 waits for the body if the connection fails.
		{"/silent", "h2", "502 brig: "},
	} {
		for _, host := range []string{"h1", "h2"} {
			for _, guest := range []string{"h1", "h2"} {
				if host == "h1" && guest == "h2" || c.host != "" && c.host != host {
					continue // without TLS there is no HTTP/2
				}
				t.Run(fmt.Sprintf("%s,host=%s,guest=%s", c.path, host, guest), func(t *testing.T) {
					l := newLab(t, host == "h2", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						switch r.URL.Path {
						case "/refused":
							w.WriteHeader(413)
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
