package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// echo responds with a description of the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %s\n", r.Proto, r.Method, r.Host, r.RequestURI)
	_ = r.Header.Write(w)
	fmt.Fprintf(w, "\n%s", body)
}

func TestAllowedRequestReachesHost(t *testing.T) {
	for _, c := range []struct {
		name       string
		secure, h2 bool
	}{{"clear", false, false}, {"tls", true, false}, {"h2", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, c.secure, http.HandlerFunc(echo))
			l.rules.Rules = []brig.EgressRule{{Host: "other.test"}, {Host: labHost, Methods: []string{"GET", "POST"}, Paths: []string{"/v1/*"}}}
			client := l.client(c.h2)
			for range 3 { // on one connection
				r := l.request("POST", "/v1/x%20y?q=1&r=%2F;%zz", strings.NewReader("hello"))
				r.Header.Set("Proxy-Authorization", "Basic eA==")
				r.Header.Set("Proxy-Connection", "keep-alive")
				r.Header.Set("Proxy-Custom", "x")
				r.Header.Set("X-Forwarded-For", "1.2.3.4")
				if !c.h2 {
					r.Header.Set("Connection", "X-Hop")
					r.Header.Set("X-Hop", "1")
				}
				res, body := l.do(client, r)
				if res.StatusCode != 200 || (res.ProtoMajor == 2) != c.h2 {
					t.Fatalf("%s %s: %s", res.Proto, res.Status, body)
				}
				if !strings.Contains(body, "POST api.test /v1/x%20y?q=1&r=%2F;%zz\n") || !strings.HasSuffix(body, "\nhello") || !strings.Contains(body, "X-Forwarded-For: 1.2.3.4") {
					t.Errorf("the server saw %s", body)
				}
				if strings.Contains(body, "Proxy-") || strings.Contains(body, "X-Hop") || strings.Contains(body, "Brig") {
					t.Errorf("what is not for the server went there: %s", body)
				}
			}
			e := l.lastEvent(Request)
			e.At = time.Time{}
			if got, want := fmt.Sprintf("%+v", e), fmt.Sprintf("%+v", Event{Kind: Request, Host: labHost, Port: l.port, Method: "POST", Path: "/v1/x y", Allowed: true, Rule: 1}); got != want {
				t.Errorf("reported %s, want %s", got, want)
			}
			if n := l.dials.Load(); n != 1 {
				t.Errorf("dialed %d times", n)
			}
		})
	}
}

func TestDeniedRequestDoesNotReachHost(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		l := newLab(t, true, http.HandlerFunc(echo))
		l.rules.Rules = []brig.EgressRule{
			{Host: labHost, Deny: true, Paths: []string{"/v1/admin*"}},
			{Host: labHost, Methods: []string{"GET"}, Paths: []string{"/v1/*"}},
		}
		client := l.client(h2)
		for _, c := range []struct {
			method, path string
			status, rule int
		}{
			{"GET", "/v1/x", 200, 1}, {"POST", "/v1/x", 403, -1}, {"GET", "/v2/x", 403, -1}, {"GET", "/v1/admin/x", 403, 0},
			{"get", "/v1/x", 403, -1}, {"GET", "/v1/%61dmin", 403, 0}, {"GET", "/v1//admin", 400, 1}, {"GET", "/v1/%2561dmin", 400, 1},
			{"GET", "/v1%2fadmin", 403, 0}, {"GET", "/v1/x%2fy", 200, 1}, {"GET", "/v1%2fx", 400, 1},
		} {
			res, body := l.do(client, l.request(c.method, c.path, nil))
			e := l.lastEvent(Request)
			if res.StatusCode != c.status || e.Allowed != (c.status == 200) || e.Rule != c.rule {
				t.Errorf("%s %s: %s %s; reported %+v", c.method, c.path, res.Status, body, e)
			}
			if c.status != 200 && (!strings.Contains(body, "egress policy") || e.Why == "") {
				t.Errorf("%s %s: told %q, reported %+v", c.method, c.path, body, e)
			}
		}
		if n := l.dials.Load(); n != 1 {
			t.Errorf("dialed %d times", n)
		}
	}
}

// A rule that denies a method also denies other spellings of the method that
// some servers accept.
func TestDeniedMethodIsDeniedInEverySpelling(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		l := newLab(t, true, http.HandlerFunc(echo))
		l.rules.Rules = []brig.EgressRule{{Host: labHost, Deny: true, Methods: []string{"DELETE"}}, {Host: labHost}}
		client := l.client(h2)
		for _, c := range []struct {
			method, path, field string
			status              int
		}{
			{"POST", "/?method=DELETE", "X-Method", 200},
			{"post", "/", "", 200},
			{"DELETE", "/", "", 403},
			{"delete", "/", "", 400},
			{"Delete", "/", "", 400},
			{"POST", "/", "X-HTTP-Method-Override", 400},
			{"POST", "/", "X_HTTP_Method_Override", 400},
			{"POST", "/?a=b&_method=delete", "", 400},
			{"POST", "/?_%4Dethod=delete", "", 400},
			{"POST", "/?_HttpMethod=DELETE", "", 400},
		} {
			r := l.request(c.method, c.path, nil)
			if c.field != "" {
				r.Header[c.field] = []string{"DELETE"}
			}
			if res, body := l.do(client, r); res.StatusCode != c.status {
				t.Errorf("%s %s %s: %s %s", c.method, c.path, c.field, res.Status, body)
			}
		}
	}
}

func TestRequestForOtherHostIsRejected(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		l := newLab(t, true, http.HandlerFunc(echo))
		client := l.client(h2)
		for host, status := range map[string]int{
			"api.test": 200, "API.Test": 200, "api.test.": 200, "api.test:443": 200, "api.test.:443": 200,
			"evil.test": 421, "api.test:80": 421, "api.test:0443": 421, "api.test.evil.test": 421, "xapi.test": 421,
			"api.test..": 421, "127.0.0.1": 421, "[::1]": 421, "api.test:": 421,
		} {
			r := l.request("GET", "/", nil)
			r.Host = host
			res, body := l.do(client, r)
			if res.StatusCode != status {
				t.Errorf("h2 %t: %s: %s %s", h2, host, res.Status, body)
			}
			if status == 200 && !strings.Contains(body, " api.test /\n") {
				t.Errorf("%s went out as %s", host, body)
			}
			if e := l.lastEvent(Request); e.Allowed != (status == 200) || !e.Allowed && !strings.Contains(e.Why, "another host") {
				t.Errorf("%s: reported %+v", host, e)
			}
		}
	}
}

func TestHandshakeForOtherServerNameFails(t *testing.T) {
	l := newLab(t, true, http.HandlerFunc(echo))
	for name, good := range map[string]bool{"api.test": true, "API.test": true, "evil.test": false, "": false, "x.api.test": false} {
		conn := tls.Client(l.connect(), &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err := conn.Handshake(); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
		conn.Close()
	}
	if e := l.lastEvent(Request); e.Allowed || !strings.Contains(e.Why, "client hello") {
		t.Errorf("reported %+v", e)
	}
	if l.dials.Load() != 0 {
		t.Error("something was dialed")
	}
}

// TestInspectionCanEndDuringHandshake ends inspections when the guest's handshake is complete. It is
// for the race detector: the inspection changes its connection at that moment.
func TestInspectionCanEndDuringHandshake(t *testing.T) {
	l := newLab(t, true, http.HandlerFunc(echo))
	for range 100 {
		guest, host := tcpPair(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			l.serve(ctx, host, labHost, l.port, l.secure)
			close(ended)
		}()
		err := tls.Client(guest, &tls.Config{ServerName: labHost, InsecureSkipVerify: true}).Handshake()
		cancel()
		<-ended
		guest.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestUntrustedServerIsRejected(t *testing.T) {
	l := newLab(t, true, http.HandlerFunc(echo))
	if res, body := l.get("/"); res.StatusCode != 200 {
		t.Fatalf("control: %s %s", res.Status, body)
	}
	good, was := l.roots, l.server.TLS.Certificates
	l.roots = newCertPool(t, &CA{})
	res, body := l.get("/")
	if res.StatusCode != 502 || !strings.Contains(body, "unknown authority") {
		t.Errorf("%s: %s", res.Status, body)
	}
	if e := l.lastEvent(Connect); e.Allowed || !strings.Contains(e.Why, "unknown authority") {
		t.Errorf("reported %+v", e)
	}
	l.roots, l.server.TLS.Certificates = good, was
	late := l.now
	l.now = func() time.Time { return late().Add(-48 * time.Hour) }
	// The inspector's clock is two days slow, so its certificate has expired
	// for the guest. The guest skips the verification.
	conn := tls.Client(l.connect(), &tls.Config{ServerName: labHost, InsecureSkipVerify: true})
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n")
	if text, _ := io.ReadAll(conn); !strings.Contains(string(text), "502") || !strings.Contains(string(text), "not yet valid") {
		t.Errorf("%s", text)
	}
}

func TestInspectReportsUpstreamErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		text   string
	}{
		{errors.New("10.0.0.7 is secret"), 502, "cannot be reached"},
		{brig.Errorf(brig.PolicyBlocked, "its address is private"), 403, "its address is private"},
		{context.DeadlineExceeded, 502, "in time"},
	} {
		l := newLab(t, false, http.HandlerFunc(echo))
		l.inspector.dial = func(context.Context, string, int) (net.Conn, error) { return nil, c.err }
		res, body := l.get("/")
		if res.StatusCode != c.status || !strings.Contains(body, c.text) || strings.Contains(body, "10.0.0.7") {
			t.Errorf("%v: %s %s", c.err, res.Status, body)
		}
	}
}

func TestHeadersAndBodiesAreForwardedUnchanged(t *testing.T) {
	l := newLab(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "https://evil.test/x", http.StatusFound)
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, "as it is")
		case "/alt":
			w.Header().Set("Alt-Svc", `h3=":443"`)
			w.Header().Set("Keep-Alive", "timeout=5")
			w.WriteHeader(http.StatusTeapot)
		case "/typeless":
			w.Header()["Content-Type"] = nil
			io.WriteString(w, "<html>")
		case "/unchanged":
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusNotModified)
		case "/abort":
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	if res, _ := l.get("/redirect"); res.StatusCode != 302 || res.Header.Get("Location") != "https://evil.test/x" {
		t.Errorf("%s %v", res.Status, res.Header)
	}
	if res, body := l.get("/gzip"); res.Header.Get("Content-Encoding") != "gzip" || body != "as it is" {
		t.Errorf("%v %q", res.Header, body)
	}
	if res, _ := l.get("/alt"); res.StatusCode != 418 || res.Header.Get("Alt-Svc") != "" || res.Header.Get("Keep-Alive") != "" {
		t.Errorf("%s %v", res.Status, res.Header)
	}
	for _, h2 := range []bool{false, true} {
		for range 20 {
			if res, body := l.do(l.client(h2), l.request("GET", "/typeless", nil)); res.Header["Content-Type"] != nil || body != "<html>" {
				t.Fatalf("h2 %t: %v %q", h2, res.Header, body)
			}
		}
		// This HTTP/2 client also reports the missing body, but has received
		// the response.
		if res, err := l.client(h2).Do(l.request("GET", "/unchanged", nil)); err != nil || res.StatusCode != 304 {
			t.Errorf("h2 %t: %v, %v", h2, res, err)
		}
		res, err := l.client(h2).Do(l.request("GET", "/abort", nil))
		if err == nil {
			_, err = io.ReadAll(res.Body)
		}
		if err == nil {
			t.Errorf("h2 %t: half of an answer is taken for a whole", h2)
		}
	}
}

func TestInspectionEndsWithContext(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		entered := make(chan struct{})
		l := newLab(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			close(entered)
			<-r.Context().Done()
		}))
		res, err := l.client(h2).Do(l.request("GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		<-entered
		l.stop()
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Error("the answer ended as if it were whole")
		}
		l.over.Wait() // waits until serve has returned
	}
}

// withJumpingClock runs serve on pipes, under a fake clock.
func withJumpingClock(t *testing.T, f func(t *testing.T, guest net.Conn, served <-chan struct{})) {
	synctest.Test(t, func(t *testing.T) {
		i := &inspector{
			budget: newBudget(DefaultMemory), handshakeSlots: make(chan struct{}, maxConcurrentHandshakes),
			valuesSent: &sentValues{},
			authority:  &CA{}, now: time.Now, report: func(Event) {},
			judge: func(string, int, brig.Request) (brig.Verdict, int) { return brig.Allowed, 0 },
			dial:  func(context.Context, string, int) (net.Conn, error) { return nil, errors.New("no") },
		}
		guest, host := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			i.serve(t.Context(), host, labHost, 80, false)
		}()
		f(t, guest, served)
		guest.Close()
		<-served
	})
}

func TestIncompleteHeaderTimesOut(t *testing.T) {
	withJumpingClock(t, func(t *testing.T, guest net.Conn, served <-chan struct{}) {
		start, slow := time.Now(), make(chan struct{})
		go func() {
			defer close(slow)
			for _, c := range "GET / HTTP/1.1\r\nHost: api.test\r\nX-Slow: " + strings.Repeat("x", 100) {
				if _, err := guest.Write([]byte{byte(c)}); err != nil {
					return
				}
				time.Sleep(time.Second) // on the fake clock
			}
		}()
		<-served
		<-slow
		if d := time.Since(start); d < headerTimeout-time.Second || d > headerTimeout+2*time.Second {
			t.Errorf("hung up after %v", d)
		}
	})
}

func TestIdleConnectionTimesOut(t *testing.T) {
	withJumpingClock(t, func(t *testing.T, guest net.Conn, served <-chan struct{}) {
		go io.WriteString(guest, "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n")
		buf := make([]byte, 4096)
		if n, err := guest.Read(buf); err != nil || !strings.Contains(string(buf[:n]), "502") {
			t.Fatalf("%s %v", buf[:n], err)
		}
		go io.Copy(io.Discard, guest)
		start := time.Now()
		<-served
		if d := time.Since(start); d < idleTimeout-time.Second || d > idleTimeout+2*time.Second {
			t.Errorf("hung up after %v", d)
		}
	})
}

// A panic in a rule closes only the connection of its request.
func TestPanicClosesOnlyItsConnection(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		l := newLab(t, true, http.HandlerFunc(echo))
		l.judge = func(_ string, _ int, q brig.Request) (brig.Verdict, int) {
			if q.Path == "/panic" {
				panic("in a rule")
			}
			return brig.Allowed, 0
		}
		client := l.client(h2)
		if res, err := client.Do(l.request("GET", "/panic", nil)); err == nil {
			t.Errorf("answered %s", res.Status)
		}
		if res, body := l.do(client, l.request("GET", "/", nil)); res.StatusCode != 200 {
			t.Errorf("%s %s", res.Status, body)
		}
	}
}
