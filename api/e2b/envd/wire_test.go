package envd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// request is a raw request in an SDK's format.
type request struct {
	method, path, body string
	header             map[string]string
	noToken            bool
}

func (q request) do(t *testing.T, base string) (*http.Response, string) {
	t.Helper()
	res := q.open(t, base)
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return res, string(body)
}

func (q request) open(t *testing.T, base string) *http.Response {
	t.Helper()
	if q.method == "" {
		q.method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), q.method, base+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	if !q.noToken {
		r.Header.Set("X-Access-Token", token)
	}
	for k, v := range q.header {
		r.Header.Set(k, v)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// unary calls a method with JSON and returns the status and the body without
// the random spaces of protojson.
func unary(t *testing.T, base, method, body string, header ...string) (int, string) {
	t.Helper()
	q := request{path: method, body: body, header: map[string]string{"Content-Type": "application/json", "Connect-Protocol-Version": "1"}}
	for i := 0; i+1 < len(header); i += 2 {
		q.header[header[i]] = header[i+1]
	}
	res, got := q.do(t, base)
	return res.StatusCode, compact(got)
}

func compact(s string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(s)) != nil {
		return s
	}
	return b.String()
}

func envelope(body string) string {
	return "\x00" + string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
}

// stream calls a streaming method with JSON.
func stream(t *testing.T, base, method, body string, header ...string) *http.Response {
	t.Helper()
	q := request{path: method, body: envelope(body), header: map[string]string{"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}}
	for i := 0; i+1 < len(header); i += 2 {
		q.header[header[i]] = header[i+1]
	}
	return q.open(t, base)
}

// next reads one envelope. It prefixes the last envelope with "!".
func next(r io.Reader) (string, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return "", err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(r, body); err != nil {
		return "", err
	}
	mark := ""
	if head[0] == 2 {
		mark = "!"
	}
	return mark + compact(string(body)), nil
}

func transcript(t *testing.T, res *http.Response, want ...string) {
	t.Helper()
	defer res.Body.Close()
	for _, w := range want {
		got, err := next(res.Body)
		if err != nil || got != w {
			t.Fatalf("got %s, %v\nwant %s", got, err, w)
		}
	}
	if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
		t.Fatalf("after the end: %q, %v", rest, err)
	}
}

// scriptEvents returns an attachment that sends all of evs.
func scriptEvents(evs ...brig.ProcessEvent) func(context.Context, int64, func(brig.ProcessEvent) error) error {
	return func(_ context.Context, _ int64, on func(brig.ProcessEvent) error) error {
		for _, ev := range evs {
			if err := on(ev); err != nil {
				return err
			}
		}
		return nil
	}
}

const startRequest = `{"process":{"cmd":"/bin/bash","args":["-l","-c","echo hi"],"envs":{"A":"1"},"cwd":"/tmp"},"stdin":false}`

func TestStart(t *testing.T) {
	s := newStub()
	s.files["/tmp/"] = ""
	srv := serve(t, s)
	s.attach = scriptEvents(
		brig.ProcessEvent{Output: []byte("hi\n"), From: brig.FromStdout},
		brig.ProcessEvent{Output: []byte("ow"), From: brig.FromStderr},
		brig.ProcessEvent{End: &brig.Result{Done: true}},
	)
	transcript(t, stream(t, srv.URL, "/process.Process/Start", startRequest, "Connect-Timeout-Ms", "60000"),
		`{"event":{"start":{"pid":42}}}`, `{"event":{"data":{"stdout":"aGkK"}}}`, `{"event":{"data":{"stderr":"b3c="}}}`,
		`{"event":{"end":{"exited":true,"status":"exit status 0"}}}`, `!{}`)
	cmd := s.spec.Command
	if strings.Join(cmd.Argv, " ") != "/bin/bash -l -c echo hi" || cmd.Env["A"] != "1" || cmd.Dir != "/tmp" || cmd.User != "user" ||
		cmd.Timeout != time.Minute || !s.spec.NoInput || s.spec.Terminal != nil {
		t.Errorf("started %+v", s.spec)
	}

	s.attach = scriptEvents(brig.ProcessEvent{Output: bytes.Repeat([]byte("x"), 20<<10), From: brig.FromStdout}, brig.ProcessEvent{End: &brig.Result{ExitCode: 137, Signal: "SIGKILL"}})
	res := stream(t, srv.URL, "/process.Process/Start", `{"process":{"cmd":"/bin/bash"},"pty":{"size":{"cols":80,"rows":24}},"tag":"x"}`, "Authorization", "Basic cm9vdDo=")
	defer res.Body.Close()
	var all []string
	for {
		m, err := next(res.Body)
		if err != nil {
			break
		}
		all = append(all, m)
	}
	if len(all) != 5 || !strings.HasPrefix(all[1], `{"event":{"data":{"pty":"eHh4`) || all[3] != `{"event":{"end":{"exitCode":-1,"status":"signal: killed","error":"signal: killed"}}}` {
		t.Errorf("got %d events: %.300q", len(all), all)
	}
	if s.spec.Terminal == nil || *s.spec.Terminal != (brig.Terminal{Columns: 80, Rows: 24}) || s.spec.Command.Dir != "/root" || s.spec.Command.User != "root" ||
		s.spec.NoInput || s.spec.Tag != "x" || s.spec.Command.Timeout != 0 {
		t.Errorf("started %+v", s.spec)
	}
	if code, body := unary(t, srv.URL, "/process.Process/List", `{}`); code != 200 ||
		body != `{"processes":[{"config":{"cmd":"/bin/bash","args":["-l","-c","echo hi"],"envs":{"A":"1"},"cwd":"/tmp"},"pid":42},{"config":{"cmd":"/bin/bash","cwd":"/root"},"pid":42,"tag":"x"}]}` {
		t.Errorf("list: %d %s", code, body)
	}
}

// Events end at character boundaries. Invalid bytes are sent unchanged before the output ends.
func TestEventsEndAtCharacters(t *testing.T) {
	const text = "ü€😀"
	for _, c := range []struct {
		what   string
		output []string // of stdout, except those that begin with "!"
		want   string
		events int
	}{
		{"characters in pieces", []string{text[:1], text[1:3], text[3:6], text[6:]}, text, 3},
		{"a long output", []string{"x" + strings.Repeat(text, 10000)}, "x" + strings.Repeat(text, 10000), 3},
		{"not text", []string{"\xff\xfe", "\x80\xf0", "\xf0"}, "\xff\xfe\x80\xf0\xf0", 4},
		{"the beginning of a character", []string{"a\xe2"}, "a\xe2", 2},
		{"both streams", []string{"\xe2", "!\xc3", "\x82\xac", "!\xbc"}, "€ü", 2},
	} {
		s := newStub()
		srv := serve(t, s)
		var evs []brig.ProcessEvent
		for _, o := range c.output {
			ev := brig.ProcessEvent{Output: []byte(o), From: brig.FromStdout}
			if rest, ok := strings.CutPrefix(o, "!"); ok {
				ev = brig.ProcessEvent{Output: []byte(rest), From: brig.FromStderr}
			}
			evs = append(evs, ev)
		}
		s.attach = scriptEvents(append(evs, brig.ProcessEvent{End: &brig.Result{Done: true}})...)
		res := stream(t, srv.URL, "/process.Process/Start", `{"process":{"cmd":"x"}}`)
		defer res.Body.Close()
		var got []byte
		events := 0
		for {
			m, err := next(res.Body)
			if err != nil {
				break
			}
			var in struct {
				Event struct {
					Data struct{ Stdout, Stderr []byte }
				}
			}
			if err := json.Unmarshal([]byte(strings.TrimPrefix(m, "!")), &in); err != nil {
				t.Fatal(err)
			}
			data := append(in.Event.Data.Stdout, in.Event.Data.Stderr...)
			if got = append(got, data...); len(data) > 0 {
				events++
			}
			if utf8.ValidString(c.want) && !utf8.Valid(data) {
				t.Errorf("%s: an event has a part of a character: %.20q…%q", c.what, data, data[max(len(data)-4, 0):])
			}
		}
		if string(got) != c.want || events > c.events {
			t.Errorf("%s: %d bytes in %d events, want %d in %d", c.what, len(got), events, len(c.want), c.events)
		}
	}
}

func TestProcessExit(t *testing.T) {
	s := newStub()
	srv := serve(t, s)
	for _, c := range []struct {
		end  brig.Result
		want string
	}{
		{brig.Result{ExitCode: 3}, `{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3","error":"exit status 3"}}}`},
		{brig.Result{ExitCode: 143, Signal: "SIGTERM"}, `{"event":{"end":{"exitCode":-1,"status":"signal: terminated","error":"signal: terminated"}}}`},
		{brig.Result{ExitCode: 137, OOMKilled: true}, `{"event":{"end":{"exitCode":-1,"status":"signal: killed","error":"signal: killed"}}}`},
		{brig.Result{ExitCode: 137}, `{"event":{"end":{"exitCode":137,"exited":true,"status":"exit status 137","error":"exit status 137"}}}`},
	} {
		s.attach = scriptEvents(brig.ProcessEvent{End: &c.end})
		transcript(t, stream(t, srv.URL, "/process.Process/Start", `{"process":{"cmd":"x"}}`), `{"event":{"start":{"pid":42}}}`, c.want, `!{}`)
	}
	s.attach = scriptEvents(brig.ProcessEvent{End: &brig.Result{ExitCode: 124, TimedOut: true}})
	transcript(t, stream(t, srv.URL, "/process.Process/Start", `{"process":{"cmd":"x"}}`, "Connect-Timeout-Ms", "50"),
		`{"event":{"start":{"pid":42}}}`, `!{"error":{"code":"deadline_exceeded","message":"the time of 50ms is up"}}`)
}

// If a client connects to a process that another request started, a timeout ends only the
// client's stream and not the process.
func TestConnect(t *testing.T) {
	s := newStub()
	s.list = []*brig.ProcessInfo{
		{PID: 7, Spec: brig.ProcessSpec{Tag: "t"}, Written: 9},
		{PID: 8, Result: &brig.Result{ExitCode: 1}},
	}
	srv := serve(t, s)
	s.attach = func(ctx context.Context, from int64, _ func(brig.ProcessEvent) error) error {
		if from != 9 {
			t.Errorf("attached from %d", from)
		}
		<-ctx.Done()
		return ctx.Err()
	}
	transcript(t, stream(t, srv.URL, "/process.Process/Connect", `{"process":{"tag":"t"}}`, "Connect-Timeout-Ms", "30"),
		`{"event":{"start":{"pid":7}}}`, `!{"error":{"code":"deadline_exceeded","message":"the time of 30ms is up"}}`)
	s.attach = scriptEvents(brig.ProcessEvent{End: &brig.Result{ExitCode: 1}})
	transcript(t, stream(t, srv.URL, "/process.Process/Connect", `{"process":{"pid":8}}`),
		`{"event":{"start":{"pid":8}}}`, `{"event":{"end":{"exitCode":1,"exited":true,"status":"exit status 1","error":"exit status 1"}}}`, `!{}`)
	transcript(t, stream(t, srv.URL, "/process.Process/Connect", `{"process":{"pid":9}}`),
		`!{"error":{"code":"not_found","message":"process with pid 9 not found"}}`)
	transcript(t, stream(t, srv.URL, "/process.Process/Connect", `{"process":{"pid":7}}`, "Connect-Timeout-Ms", "-1"),
		`!{"error":{"code":"invalid_argument","message":"parse timeout: \"-1\" is negative"}}`)
}

// When a client disconnects, only its attachment ends.
func TestDisconnect(t *testing.T) {
	s := newStub()
	srv := serve(t, s)
	ended := make(chan error, 1)
	s.attach = func(ctx context.Context, _ int64, _ func(brig.ProcessEvent) error) error {
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
	res := stream(t, srv.URL, "/process.Process/Start", `{"process":{"cmd":"x"}}`)
	if got, err := next(res.Body); err != nil || !strings.Contains(got, "start") {
		t.Fatal(got, err)
	}
	res.Body.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the stream goes on without a client")
	}
	if got := s.lastCall(); got != "start" {
		t.Errorf("the process was touched: %s", got)
	}
}

func TestKeepalive(t *testing.T) {
	s := newStub()
	srv := serve(t, s)
	go1 := make(chan struct{})
	s.attach = func(_ context.Context, _ int64, on func(brig.ProcessEvent) error) error {
		<-go1
		return on(brig.ProcessEvent{End: &brig.Result{}})
	}
	res := stream(t, srv.URL, "/process.Process/Start", `{"process":{"cmd":"x"}}`, "Keepalive-Ping-Interval", "1")
	for _, want := range []string{`{"event":{"start":{"pid":42}}}`, `{"event":{"keepalive":{}}}`} {
		if got, err := next(res.Body); got != want {
			t.Fatalf("got %s, %v", got, err)
		}
	}
	close(go1)
	transcript(t, res, `{"event":{"end":{"exited":true,"status":"exit status 0"}}}`, `!{}`)
}

// The end of a sandbox aborts its streams.
func TestSandboxEndAbortsStreams(t *testing.T) {
	s := newStub()
	srv := serve(t, s)
	s.attach = func(context.Context, int64, func(brig.ProcessEvent) error) error {
		<-s.ended
		return brig.Errorf(brig.FailedPrecondition, "the sandbox is not running")
	}
	process := stream(t, srv.URL, "/process.Process/Start", `{"process":{"cmd":"x"}}`)
	defer process.Body.Close()
	watch := stream(t, srv.URL, "/filesystem.Filesystem/WatchDir", `{"path":"/tmp"}`)
	defer watch.Body.Close()
	for _, r := range []*http.Response{process, watch} {
		if _, err := next(r.Body); err != nil {
			t.Fatal(err)
		}
	}
	s.endSandbox()
	for _, r := range []*http.Response{process, watch} {
		if got, err := next(r.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %q, %v; want a broken connection", got, err)
		}
	}
	if code, body := unary(t, srv.URL, "/filesystem.Filesystem/Stat", `{"path":"/"}`); code != 503 || body != `{"code":"unavailable","message":"The sandbox was not found"}` {
		t.Errorf("after the end: %d %s", code, body)
	}
	res, body := request{method: "GET", path: "/files?path=x"}.do(t, srv.URL)
	if res.StatusCode != 502 || body != `{"sandboxId":"box","code":502,"message":"The sandbox was not found"}` {
		t.Errorf("after the end: %d %s", res.StatusCode, body)
	}
	transcript(t, stream(t, srv.URL, "/process.Process/Start", `{"process":{"cmd":"x"}}`),
		`!{"error":{"code":"unavailable","message":"The sandbox was not found"}}`)
}

// A sandbox that is removed during the lookup of an account is answered like any removed sandbox,
// and not with an unknown user.
func TestRemovalDuringLookupOfAccount(t *testing.T) {
	s := newStub()
	srv := serve(t, s)
	get := func() (int, string) {
		res, body := request{method: "GET", path: "/files?path=x&username=alice"}.do(t, srv.URL)
		return res.StatusCode, body
	}
	stat := func() (int, string) {
		return unary(t, srv.URL, "/filesystem.Filesystem/Stat", `{"path":"x"}`, "Authorization", "Basic YWxpY2U6")
	}
	if code, body := get(); code != 401 {
		t.Errorf("without accounts: %d %s", code, body)
	}
	if code, body := stat(); code != 401 {
		t.Errorf("without accounts: %d %s", code, body)
	}
	s.endSandbox()
	s.failWith(brig.Errorf(brig.NotFound, "no sandbox %q", "box"))
	if code, body := get(); code != 502 || body != `{"sandboxId":"box","code":502,"message":"The sandbox was not found"}` {
		t.Errorf("removed: %d %s", code, body)
	}
	s.failWith(brig.Errorf(brig.NotFound, "no sandbox %q", "box"))
	if code, body := stat(); code != 503 || body != `{"code":"unavailable","message":"The sandbox was not found"}` {
		t.Errorf("removed: %d %s", code, body)
	}
	s.failWith(brig.Errorf(brig.NotFound, "no sandbox %q", "box"))
	transcript(t, stream(t, srv.URL, "/process.Process/Start", `{"process":{"cmd":"x"}}`, "Authorization", "Basic YWxpY2U6"),
		`!{"error":{"code":"unavailable","message":"The sandbox was not found"}}`)
}
