package envd_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b/envd"
)

func TestSignature(t *testing.T) {
	if got := envd.Signature("hello.txt", "read", "user", token, 0); got != "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E" {
		t.Error(got)
	}
}

func TestAuthorization(t *testing.T) {
	s := newStub()
	s.files["/home/user/hello.txt"] = "hi"
	srv := serve(t, s)
	const refused = `{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}`
	url := func(op string, exp int64) string {
		u := "/files?path=hello.txt&username=user&signature=" + url.QueryEscape(envd.Signature("hello.txt", op, "user", token, exp))
		if exp != 0 {
			u += fmt.Sprintf("&signature_expiration=%d", exp)
		}
		return u
	}
	soon, past := time.Now().Add(time.Minute).Unix(), time.Now().Add(-time.Minute).Unix()
	for _, c := range []struct {
		method, path, token string
		code                int
		body                string
	}{
		{"GET", "/health", "", 204, ""},
		{"GET", "/envs", "", 401, refused},
		{"GET", "/envs", "wrong", 401, refused},
		{"GET", "/envs", token, 200, `{"A":"1"}`},
		{"GET", "/metrics", token, 501, ""},
		{"POST", "/process.Process/List", "", 401, refused},
		{"POST", "/init", token, 404, ""},
		{"POST", "/freeze", token, 404, ""},
		{"GET", "/files?path=hello.txt", token, 200, "hi"},
		{"GET", "/files?path=hello.txt", "", 401, `{"code":401,"message":"missing signature query parameter"}`},
		{"GET", url("read", 0), "", 200, "hi"},
		{"GET", url("read", 0), "wrong", 401, refused},
		{"GET", url("read", soon), "", 200, "hi"},
		{"GET", url("read", past), "", 401, `{"code":401,"message":"signature is already expired"}`},
		{"GET", url("write", 0), "", 401, `{"code":401,"message":"invalid signature"}`},
		{"GET", url("read", 0) + "&signature_expiration=x", "", 401, `{"code":401,"message":"invalid signature"}`},
		{"POST", url("read", 0), "", 401, `{"code":401,"message":"invalid signature"}`},
		{"POST", "/files/compose", "", 401, refused},
	} {
		q := request{method: c.method, path: c.path, noToken: true, header: map[string]string{}}
		if c.token != "" {
			q.header["X-Access-Token"] = c.token
		}
		res, body := q.do(t, srv.URL)
		if res.StatusCode != c.code || c.body != "" && body != c.body || res.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s %s with %q: %d %s", c.method, c.path, c.token, res.StatusCode, body)
		}
	}
	res, _ := request{method: "OPTIONS", path: "/process.Process/Start", noToken: true, header: map[string]string{"Access-Control-Request-Headers": "authorization,x-access-token"}}.do(t, srv.URL)
	if res.StatusCode != 204 || res.Header.Get("Access-Control-Allow-Headers") != "authorization,x-access-token" {
		t.Errorf("preflight: %d %v", res.StatusCode, res.Header)
	}
}

func TestDownload(t *testing.T) {
	s := newStub()
	s.files["/home/user/a.txt"], s.files["/home/user/d/"], s.files["/proc/version"], s.files["/home/user/empty"] = "0123456789", "", "Linux", ""
	s.files["/home/user/ü b"], s.files["/root/r"], s.files["/home/user/cut"] = "u", "root's", "short"
	srv := serve(t, s)
	for _, c := range []struct {
		query, ranges string
		code          int
		body, length  string
	}{
		{"path=a.txt", "", 200, "0123456789", "10"},
		{"path=a.txt", "bytes=2-4", 206, "234", "3"},
		{"path=a.txt", "bytes=7-", 206, "789", "3"},
		{"path=a.txt", "bytes=-2", 206, "89", "2"},
		{"path=a.txt", "bytes=20-", 416, "", ""},
		{"path=/proc/version", "", 200, "Linux", ""},
		{"path=empty", "", 200, "", "0"},
		{"path=r&username=root", "", 200, "root's", "6"},
		{"path=%C3%BC%20b", "", 200, "u", "1"},
		{"path=d", "", 400, `{"code":400,"message":"path '/home/user/d' is a directory"}`, ""},
		{"", "", 400, "", ""},
		{"path=gone", "", 404, `{"code":404,"message":"path '/home/user/gone' does not exist"}`, ""},
		{"path=a.txt&username=eve", "", 401, `{"code":401,"message":"error looking up user 'eve': user: unknown user eve"}`, ""},
	} {
		q := request{method: "GET", path: "/files?" + c.query, header: map[string]string{"Accept-Encoding": "gzip, deflate"}}
		if c.ranges != "" {
			q.header["Range"] = c.ranges
		}
		if c.query == "" {
			s.files["/home/user/"] = ""
		}
		res, body := q.do(t, srv.URL)
		if res.StatusCode != c.code || c.body != "" && body != c.body || c.length != "" && res.Header.Get("Content-Length") != c.length || res.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s %s: %d %q %v", c.query, c.ranges, res.StatusCode, body, res.Header)
		}
	}
	res, _ := request{method: "GET", path: "/files?path=a.txt"}.do(t, srv.URL)
	if res.Header.Get("Content-Disposition") != `inline; filename=a.txt` || res.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("%v", res.Header)
	}
	res, _ = request{method: "GET", path: "/files?path=a.txt", header: map[string]string{"If-Modified-Since": res.Header.Get("Last-Modified")}}.do(t, srv.URL)
	if res.StatusCode != 304 {
		t.Errorf("not modified: %d", res.StatusCode)
	}
	// If a file is shorter than its reported size, the response ends with an
	// error.
	r, _ := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/files?path=cut", nil)
	r.Header.Set("X-Access-Token", token)
	if res, err := http.DefaultClient.Do(r); err == nil {
		defer res.Body.Close()
		if _, err := new(bytes.Buffer).ReadFrom(res.Body); err == nil {
			t.Error("a file that was cut seems whole")
		}
	}
}

// form builds a multipart body from pairs of header and content.
func form(parts ...string) (body string, header map[string]string) {
	var b strings.Builder
	for i := 0; i+1 < len(parts); i += 2 {
		b.WriteString("--XX\r\nContent-Disposition: " + parts[i] + "\r\n\r\n" + parts[i+1] + "\r\n")
	}
	b.WriteString("--XX--\r\n")
	return b.String(), map[string]string{"Content-Type": "multipart/form-data; boundary=XX"}
}

func TestUploadForms(t *testing.T) {
	s := newStub()
	srv := serve(t, s)
	for _, c := range []struct {
		name, query string
		parts       []string
		code        int
		want        string
		files       map[string]string
	}{
		{"by path", "?path=a.txt", []string{`form-data; name="file"; filename="x"`, "hi"}, 200,
			`[{"path":"/home/user/a.txt","name":"a.txt","type":"file"}]`, map[string]string{"/home/user/a.txt": "hi"}},
		{"by names", "?username=root", []string{`form-data; name="file"; filename="/tmp/d/é \"q\".txt"`, "1", `form-data; name="note"`, "n", `form-data; name="file"; filename="b/c"`, "2"}, 200,
			`[{"path":"/tmp/d/é \"q\".txt","name":"é \"q\".txt","type":"file"},{"path":"/root/b/c","name":"c","type":"file"}]`, map[string]string{"/root/b/c": "2"}},
		{"no filename", "?path=p", []string{`form-data; name="file"`, "3"}, 200, `[{"path":"/home/user/p","name":"p","type":"file"}]`, map[string]string{"/home/user/p": "3"}},
		{"no files", "", []string{`form-data; name="other"`, "x"}, 200, `[]`, nil},
		{"no name at all", "", []string{`form-data; name="file"`, "x"}, 400, ``, nil},
		{"twice", "", []string{`form-data; name="file"; filename="t"`, "x", `form-data; name="file"; filename="/home/user/./t"`, "y"}, 400, ``, nil},
		{"mess", "", []string{`form-data; name="file`, "x"}, 400, ``, nil},
		{"other home", "", []string{`form-data; name="file"; filename="~eve/x"`, "x"}, 400, ``, nil},
		{"bad user", "?username=eve&path=x", []string{`form-data; name="file"`, "x"}, 401, ``, nil},
	} {
		body, header := form(c.parts...)
		res, got := request{path: "/files" + c.query, body: body, header: header}.do(t, srv.URL)
		if res.StatusCode != c.code || c.want != "" && got != c.want {
			t.Errorf("%s: %d %s", c.name, res.StatusCode, got)
		}
		for k, v := range c.files {
			if s.files[k] != v {
				t.Errorf("%s: %s holds %q", c.name, k, s.files[k])
			}
		}
	}
	body, header := form(`form-data; name="file"; filename="x"`, "whole")
	res, got := request{path: "/files", body: body[:len(body)-8], header: header}.do(t, srv.URL)
	if res.StatusCode != 400 {
		t.Errorf("cut: %d %s", res.StatusCode, got)
	}
}

func TestUploadRaw(t *testing.T) {
	s := newStub()
	srv := serve(t, s)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, _ = w.Write([]byte("unpacked"))
	_ = w.Close()
	raw := "application/octet-stream"
	full := brig.Errorf(brig.FailedPrecondition, "the disk is full")
	for _, c := range []struct {
		name, query, body string
		header            map[string]string
		fail              error
		code              int
		want, holds       string
	}{
		{"raw", "?path=/tmp/r", "body", map[string]string{"Content-Type": raw, "X-Metadata-Team-Name": "a b", "x-metadata-x": "1"}, nil, 200,
			`[{"path":"/tmp/r","name":"r","type":"file","metadata":{"team-name":"a b","x":"1"}}]`, "body"},
		{"gzip", "?path=/tmp/r", z.String(), map[string]string{"Content-Type": raw, "Content-Encoding": "gzip"}, nil, 200, `[{"path":"/tmp/r","name":"r","type":"file"}]`, "unpacked"},
		{"empty", "?path=/tmp/r", "", map[string]string{"Content-Type": raw}, nil, 200, `[{"path":"/tmp/r","name":"r","type":"file"}]`, ""},
		{"not gzip", "?path=/tmp/r", "plain", map[string]string{"Content-Type": raw, "Content-Encoding": "gzip"}, nil, 400, ``, ""},
		{"cut gzip", "?path=/tmp/r", z.String()[:z.Len()-6], map[string]string{"Content-Type": raw, "Content-Encoding": "gzip"}, nil, 400, ``, ""},
		{"brotli", "?path=/tmp/r", "x", map[string]string{"Content-Type": raw, "Content-Encoding": "br"}, nil, 400, ``, ""},
		{"no path", "", "x", map[string]string{"Content-Type": raw}, nil, 400, ``, ""},
		{"no type", "?path=x", "x", nil, nil, 400, ``, ""},
		{"json", "?path=x", "{}", map[string]string{"Content-Type": "application/json"}, nil, 400, ``, ""},
		{"metadata", "?path=x", "x", map[string]string{"Content-Type": raw, "X-Metadata-K": "\xc3\xa9"}, nil, 400, ``, ""},
		{"much metadata", "?path=x", "x", map[string]string{"Content-Type": raw, "X-Metadata-K": strings.Repeat("v", 4096)}, nil, 400, ``, ""},
		{"long key", "?path=x", "x", map[string]string{"Content-Type": raw, "X-Metadata-" + strings.Repeat("k", 247): "v"}, nil, 400, ``, ""},
		{"full", "?path=x", "x", map[string]string{"Content-Type": raw}, full, 507, `{"code":507,"message":"the disk is full"}`, ""},
		{"directory", "?path=x", "x", map[string]string{"Content-Type": raw}, brig.InvalidField("path", "is a directory"), 400, ``, ""},
	} {
		s.failWith(c.fail)
		res, got := request{path: "/files" + c.query, body: c.body, header: c.header}.do(t, srv.URL)
		if res.StatusCode != c.code || c.want != "" && got != c.want || c.code == 200 && s.files["/tmp/r"] != c.holds {
			t.Errorf("%s: %d %s, holds %q", c.name, res.StatusCode, got, s.files["/tmp/r"])
		}
	}
}

func TestCompose(t *testing.T) {
	s := newStub()
	s.files["/home/user/1"], s.files["/home/user/2"] = "one", "two"
	srv := serve(t, s)
	res, got := request{path: "/files/compose", body: `{"source_paths":["1","2"],"destination":"/tmp/all"}`}.do(t, srv.URL)
	if res.StatusCode != 200 || got != `{"path":"/tmp/all","name":"all","type":"file"}` || s.files["/tmp/all"] != "onetwo" {
		t.Errorf("%d %s %q", res.StatusCode, got, s.files)
	}
	for _, body := range []string{``, `{}`, `{"source_paths":[],"destination":"x"}`, `[`} {
		if res, got := (request{path: "/files/compose", body: body}).do(t, srv.URL); res.StatusCode != 400 {
			t.Errorf("%s: %d %s", body, res.StatusCode, got)
		}
	}
}

// A request that names many files reads the accounts once.
func TestAccountsAreReadOncePerRequest(t *testing.T) {
	s := newStub()
	s.files["/etc/passwd"] = "alice:x:1001:1002::/home/alice:/bin/sh\n"
	srv := serve(t, s)
	names := strings.Repeat(`"a",`, 500) + `"b"`
	request{method: "POST", path: "/files/compose", body: `{"source_paths":[` + names + `],"destination":"c","username":"alice"}`}.do(t, srv.URL)
	reads := 0
	for _, c := range s.calls {
		if c == "read /etc/passwd" {
			reads++
		}
	}
	if reads != 1 {
		t.Errorf("%d reads of /etc/passwd", reads)
	}
}
