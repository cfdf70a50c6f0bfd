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

	"github.com/brig-run/brig"
)

// stallUpload sends a request whose body the guest does not complete, and returns the
// status of the response and whether the connection then ends.
func (l *lab) stallUpload(head string) (status string, ended bool) {
	l.t.Helper()
	c := l.connect()
	if l.secure {
		c = tls.Client(c, &tls.Config{RootCAs: l.trust(), ServerName: labHost})
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, head)
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, nil)
	if err == nil && res.StatusCode == http.StatusContinue {
		res, err = http.ReadResponse(in, nil)
	}
	if err != nil {
		return err.Error(), false
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error(), false
	}
	_, err = in.ReadByte()
	return fmt.Sprint(res.StatusCode, " ", strings.TrimSpace(string(text))), err == io.EOF
}

// The guest sends a part of a body and stalls. The guest receives the response, even if the request
// is refused or the host does not respond, and its connection ends without waiting for the guest.
func TestStalledUploadReceivesResponse(t *testing.T) {
	bodies := map[string]string{
		"length": "Content-Length: 1000\r\n\r\nfirst",
		"waits":  "Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
		"chunks": "Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
	}
	for name, body := range bodies {
		for _, c := range []struct{ path, want string }{
			{"/early", "200 enough"},
			{"/silent", "502 brig: there is no answer"},
			{"/forbidden", "403 brig: this request"},
			{"/%00", "400 brig: this request"},
		} {
			for _, host := range []string{"h1", "h1s", "h2"} {
				t.Run(fmt.Sprintf("%s,%s,host=%s", name, c.path[1:], host), func(t *testing.T) {
					t.Parallel()
					l := newLabOf(t, host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.URL.Path == "/silent" {
							if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
								_ = c.Close() // a panic would wait for the body first
								return
							}
							panic(http.ErrAbortHandler)
						}
						_ = http.NewResponseController(w).EnableFullDuplex()
						w.Header().Set("Content-Length", "6")
						_, _ = io.WriteString(w, "enough")
						_ = http.NewResponseController(w).Flush()
						if r.ProtoMajor == 2 {
							return
						}
						_, _ = io.Copy(io.Discard, r.Body) // net/http panics if it has to do that in full duplex
					}))
					l.rules.Rules = []brig.EgressRule{{Host: "*", Paths: []string{"/forbidden"}, Deny: true}, {Host: "*"}}
					got, ended := l.stallUpload("POST " + c.path + " HTTP/1.1\r\nHost: api.test\r\n" + body)
					if !strings.HasPrefix(got, c.want) || !ended {
						t.Errorf("%q, and the connection has ended: %t", got, ended)
					}
				})
			}
		}
	}
}
