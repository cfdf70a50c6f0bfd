package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/httpapi/transcript"
)

func TestCheckShapeLimitsValuesAndLevels(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":0,`, i)
		}
		return "{" + b.String() + `"last":0}`
	}
	for what, c := range map[string]struct {
		doc string
		ok  bool
	}{
		"nothing":                {"", true},
		"not JSON":               {`}}]],,,"`, true},
		"levels":                 {deep(128), true},
		"too many levels":        {deep(129), false},
		"brackets in a string":   {`"` + strings.Repeat("[,", 300_000) + `"`, true},
		"an escaped quote":       {`"\"` + strings.Repeat("[", 200) + `"`, true},
		"elements":               {"[" + strings.Repeat("0,", 199_000) + "0]", true},
		"too many elements":      {"[" + strings.Repeat("0,", 200_000) + "0]", false},
		"too many empty objects": {"[" + strings.Repeat("{},", 101_000) + "0]", false},
		"keys":                   {keys(19_999), true},
		"too many keys":          {keys(20_000), false},
		"keys of two objects":    {"[" + keys(15_000) + "," + keys(15_000) + "]", true},
	} {
		if err := httpapi.CheckShape([]byte(c.doc)); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
	for doc, want := range map[string]int{`[]`: 0, ` [1]`: 1, `[{"a":[1,2]},{}]`: 2, `{"a":[1,2]}`: 0, `"[1,2]"`: 0, `[[],[],[]]`: 3} {
		if n, err := httpapi.CountElements([]byte(doc)); n != want || err != nil {
			t.Errorf("%s has %d elements, %v; want %d", doc, n, err, want)
		}
	}
	doc := []byte("[" + strings.Repeat(`{"a":"b"},`, 50_000) + "0]")
	if n := testing.AllocsPerRun(3, func() { _ = httpapi.CheckShape(doc) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// serveBodies returns a server whose handler reads JSON bodies of authenticated
// clients and responds when its channel is closed.
func serveBodies(t *testing.T, l httpapi.Limits) (url string, limiter *httpapi.Limiter, read, answer chan struct{}) {
	t.Helper()
	read, answer = make(chan struct{}, 100), make(chan struct{})
	limiter = httpapi.NewLimiter(l)
	h := httpapi.Auth(transcript.RoleKeys{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpapi.ReadDocument(w, r, 1<<20); err != nil {
			httpapi.Fail(w, r, err)
			return
		}
		read <- struct{}{}
		<-answer
	}))
	srv := httptest.NewServer(limiter.Handler(httpapi.Wrap(slog.New(slog.DiscardHandler), nil, h)))
	t.Cleanup(srv.Close)
	return srv.URL, limiter, read, answer
}

func sendBody(t *testing.T, url string, size int) (int, string, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`"`+strings.Repeat("x", size-2)+`"`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+transcript.KeyOf(brig.Viewer))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, "", ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body) // the part that arrived
	return resp.StatusCode, resp.Header.Get("Retry-After"), string(body)
}

// The memory of request bodies is limited per tenant (429) and for the whole server (503). It
// is released after the response.
func TestBodyMemoryIsLimited(t *testing.T) {
	for what, c := range map[string]struct {
		limits httpapi.Limits
		status int
		code   string
	}{
		"of a tenant":   {httpapi.Limits{Bodies: 10 << 20, TenantBodies: 600_000}, http.StatusTooManyRequests, brig.RateLimited.Code()},
		"of the server": {httpapi.Limits{Bodies: 600_000, TenantBodies: 10 << 20}, http.StatusServiceUnavailable, brig.Unavailable.Code()},
	} {
		t.Run(what, func(t *testing.T) {
			url, limiter, read, answer := serveBodies(t, c.limits)
			done := make(chan int, 2)
			for range 2 {
				go func() {
					status, _, _ := sendBody(t, url, 250_000)
					done <- status
				}()
				<-read
			}
			if held := limiter.InUse(); held < 500_000 || held > 600_000 {
				t.Errorf("%d bytes are held", held)
			}
			if status, after, body := sendBody(t, url, 250_000); status != c.status || after == "" || !strings.Contains(body, c.code) {
				t.Errorf("one too many: %d, Retry-After %q, %s", status, after, body)
			}
			close(answer)
			if a, b := <-done, <-done; a != 200 || b != 200 {
				t.Errorf("the others: %d, %d", a, b)
			}
			if status, _, _ := sendBody(t, url, 250_000); status != 200 {
				t.Errorf("afterwards: %d", status)
			}
			if limiter.InUse() != 0 {
				t.Errorf("%d bytes are held in the end", limiter.InUse())
			}
		})
	}
}

// A stalled body is answered with 408.
func TestStalledBodyTimesOut(t *testing.T) {
	defer httpapi.SetBodyTimeout(300_000_000)()
	url, _, _, answer := serveBodies(t, httpapi.Limits{})
	close(answer)
	for what, head := range map[string]string{
		"none of it":      "Content-Length: 100\r\n\r\n",
		"a part":          "Content-Length: 100\r\n\r\n{",
		"a part of parts": "Transfer-Encoding: chunked\r\n\r\n3\r\n{  \r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n%s", transcript.KeyOf(brig.Viewer), head)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body) // the part that arrived
		if resp.StatusCode != http.StatusRequestTimeout || !bytes.Contains(body, []byte(brig.InvalidArgument.Code())) {
			t.Errorf("%s: %d %s", what, resp.StatusCode, body)
		}
		if _, err := in.ReadByte(); err == nil {
			t.Errorf("%s: the connection goes on", what)
		}
		conn.Close()
	}
}

// Decoding a long string allocates at most 1.5 times its length.
func TestDecodeMemoryOfLongStringIsLimited(t *testing.T) {
	data := []byte(`{"text":"` + strings.Repeat("x", 8<<20) + `"}`)
	var v struct {
		Text string `json:"text"`
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := httpapi.Decode(data, &v); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 3*uint64(len(data))/2 {
		t.Errorf("decoding %d MiB took %d MiB", len(data)>>20, took>>20)
	}
}
