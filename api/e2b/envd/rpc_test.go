package envd_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b/envd/filesystempb"
	"github.com/brig-run/brig/api/e2b/envd/processpb"
)

func TestProcessCalls(t *testing.T) {
	s := newStub()
	tty := &brig.Terminal{}
	s.list = []*brig.ProcessInfo{
		{PID: 42}, {PID: 43, Spec: brig.ProcessSpec{NoInput: true}}, {PID: 44, Spec: brig.ProcessSpec{Terminal: tty, Tag: "tty"}},
		{PID: 45, Result: &brig.Result{}},
	}
	srv := serve(t, s)
	full := brig.Errorf(brig.FailedPrecondition, "its standard input is closed")
	for _, c := range []struct {
		method, body string
		fail         error
		code         int
		want, record string
	}{
		{"SendInput", `{"process":{"pid":42},"input":{"stdin":"eA=="}}`, nil, 200, `{}`, "input x"},
		{"SendInput", `{"process":{"tag":"tty"},"input":{"pty":"eA=="}}`, nil, 200, `{}`, "input x"},
		{"SendInput", `{"process":{"pid":42},"input":{"pty":"eA=="}}`, nil, 500, `{"code":"internal","message":"the process has no terminal"}`, ""},
		{"SendInput", `{"process":{"pid":44},"input":{"stdin":"eA=="}}`, nil, 500, `{"code":"internal"`, ""},
		{"SendInput", `{"process":{"pid":43},"input":{"stdin":"eA=="}}`, nil, 500, `{"code":"internal"`, ""},
		{"SendInput", `{"process":{"pid":42},"input":{"stdin":"eA=="}}`, full, 500, `{"code":"internal","message":"its standard input is closed"}`, ""},
		{"SendInput", `{"process":{"pid":42}}`, nil, 400, `{"code":"invalid_argument"`, ""},
		{"SendInput", `{"process":{},"input":{"stdin":"eA=="}}`, nil, 400, `{"code":"invalid_argument"`, ""},
		{"SendSignal", `{"process":{"pid":42},"signal":"SIGNAL_SIGKILL"}`, nil, 200, `{}`, "signal SIGKILL"},
		{"SendSignal", `{"process":{"pid":42},"signal":"SIGNAL_SIGTERM"}`, nil, 200, `{}`, "signal SIGTERM"},
		{"SendSignal", `{"process":{"pid":42},"signal":2}`, nil, 501, `{"code":"unimplemented"`, ""},
		{"SendSignal", `{"process":{"pid":45},"signal":"SIGNAL_SIGKILL"}`, nil, 404, `{"code":"not_found","message":"process with pid 45 not found"}`, ""},
		{"Update", `{"process":{"pid":44},"pty":{"size":{"cols":100,"rows":30}}}`, nil, 200, `{}`, "resize 3"},
		{"Update", `{"process":{"pid":44},"pty":{"size":{"cols":70000,"rows":30}}}`, nil, 400, `{"code":"invalid_argument"`, ""},
		{"CloseStdin", `{"process":{"pid":42}}`, nil, 200, `{}`, "close"},
		{"CloseStdin", `{"process":{"pid":42}}`, full, 200, `{}`, "close"},
		{"CloseStdin", `{"process":{"pid":44}}`, nil, 500, `{"code":"internal"`, ""},
		{"List", `{}`, nil, 200, `{"processes":[{"config":{},"pid":42},{"config":{},"pid":43},{"config":{},"pid":44,"tag":"tty"}]}`, ""},
		{"Nothing", `{}`, nil, 404, ``, ""},
	} {
		s.failWith(c.fail)
		code, got := unary(t, srv.URL, "/process.Process/"+c.method, c.body)
		if code != c.code || !strings.HasPrefix(got, c.want) || c.record != "" && s.lastCall() != c.record {
			t.Errorf("%s %s: %d %s (saw %s), want %d %s (%s)", c.method, c.body, code, got, s.lastCall(), c.code, c.want, c.record)
		}
	}
}

func TestInvalidStart(t *testing.T) {
	s := newStub()
	srv := serve(t, s)
	s.attach = scriptEvents()
	for _, c := range []struct{ body, user, want string }{
		{`{"process":{"cmd":"x","cwd":"/gone"}}`, "", `!{"error":{"code":"invalid_argument","message":"cwd '/gone' does not exist"}}`},
		{`{"process":{"cmd":"x","cwd":"gone"}}`, "", `!{"error":{"code":"invalid_argument","message":"cwd '/home/user/gone' does not exist"}}`},
		{`{"process":{"cmd":"x","cwd":"~other"}}`, "", `!{"error":{"code":"invalid_argument"`},
		{`{"process":{"cmd":"x"}}`, "Basic ZXZlOg==", `!{"error":{"code":"unauthenticated","message":"invalid username: 'eve'"}}`},
		{`{"process":{}}`, "", `!{"error":{"code":"invalid_argument"`},
		{`{}`, "", `!{"error":{"code":"invalid_argument"`},
	} {
		res := stream(t, srv.URL, "/process.Process/Start", c.body, "Authorization", c.user)
		got, err := next(res.Body)
		res.Body.Close()
		if err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %s, %v", c.body, got, err)
		}
	}
	s.failWith(brig.InvalidField("cwd", "is not there"))
	transcript(t, stream(t, srv.URL, "/process.Process/Start", `{"process":{"cmd":"x"}}`), `!{"error":{"code":"invalid_argument","message":"cwd '/home/user' does not exist"}}`)
	s.failWith(fmt.Errorf("a password"))
	transcript(t, stream(t, srv.URL, "/process.Process/Start", `{"process":{"cmd":"x"}}`), `!{"error":{"code":"internal","message":"internal error"}}`)
	// A stream without an end event is an error.
	transcript(t, stream(t, srv.URL, "/process.Process/Start", `{"process":{"cmd":"x"}}`), `{"event":{"start":{"pid":42}}}`, `!{"error":{"code":"internal","message":"internal error"}}`)
}

func TestFilesystemCalls(t *testing.T) {
	s := newStub()
	s.files["/home/user/a.txt"], s.files["/home/user/d/"] = "hello", ""
	srv := serve(t, s)
	const a = `{"entry":{"name":"a.txt","type":"FILE_TYPE_FILE","path":"/home/user/a.txt","size":"5","mode":420,"permissions":"-rw-r--r--","owner":"user","group":"user","modifiedTime":"2026-01-02T03:04:05Z"}}`
	for _, c := range []struct {
		method, body, user string
		fail               error
		code               int
		want, record       string
	}{
		{"Stat", `{"path":"a.txt"}`, "", nil, 200, a, "stat user /home/user/a.txt"},
		{"Stat", `{"path":"~/a.txt"}`, "dXNlcjo=", nil, 200, a, "stat user /home/user/a.txt"},
		{"Stat", `{"path":"/home/user//d/../a.txt"}`, "", nil, 200, a, "stat user /home/user/a.txt"},
		{"Stat", `{"path":"d"}`, "", nil, 200, `{"entry":{"name":"d","type":"FILE_TYPE_DIRECTORY","path":"/home/user/d","mode":493,"permissions":"drwxr-xr-x"`, ""},
		{"Stat", `{"path":"a.txt"}`, "cm9vdDo=", nil, 404, `{"code":"not_found","message":"file not found: /root/a.txt"}`, "stat root /root/a.txt"},
		{"Stat", `{"path":"~eve/x"}`, "", nil, 400, `{"code":"invalid_argument"`, ""},
		{"Stat", `{"path":"x"}`, "ZXZlOg==", nil, 401, `{"code":"unauthenticated","message":"invalid username: 'eve'"}`, "read /etc/passwd"},
		{"Stat", `{"path":"x"}`, "", brig.InvalidField("path", "path 'x' is a mess"), 400, `{"code":"invalid_argument","message":"path 'x' is a mess"}`, ""},
		{"MakeDir", `{"path":"new"}`, "", nil, 200, `{"entry":{"name":"new","type":"FILE_TYPE_DIRECTORY"`, "mkdir /home/user/new"},
		{"MakeDir", `{"path":"d"}`, "", nil, 409, `{"code":"already_exists"`, ""},
		{"MakeDir", `{"path":"e"}`, "", brig.Errorf(brig.FailedPrecondition, "the disk is full"), 429, `{"code":"resource_exhausted"`, ""},
		{"Move", `{"source":"a.txt","destination":"b.txt"}`, "", nil, 200, a, "move /home/user/a.txt /home/user/b.txt"},
		{"Move", `{"source":"gone","destination":"b.txt"}`, "", nil, 404, `{"code":"not_found"`, ""},
		{"ListDir", `{"path":""}`, "", nil, 200, `{"entries":[{"name":"l","type":"FILE_TYPE_DIRECTORY","path":"/home/user/l","size":"4","mode":493,"permissions":"Lrwxrwxrwx","symlinkTarget":"/etc","isSymlink":true}]}`, "list /home/user1"},
		{"ListDir", `{"path":"/","depth":3}`, "", nil, 200, `{"entries"`, "list /3"},
		{"ListDir", `{"path":"/"}`, "", brig.Errorf(brig.FailedPrecondition, "a loop"), 400, `{"code":"failed_precondition"`, ""},
		{"Remove", `{"path":"a.txt"}`, "", nil, 200, `{}`, "remove /home/user/a.txt"},
	} {
		s.failWith(c.fail)
		header := []string{}
		if c.user != "" {
			header = []string{"Authorization", "Basic " + c.user}
		}
		code, got := unary(t, srv.URL, "/filesystem.Filesystem/"+c.method, c.body, header...)
		if code != c.code || !strings.HasPrefix(got, c.want) || c.record != "" && s.lastCall() != c.record {
			t.Errorf("%s %s: %d %s (saw %s), want %d %s (%s)", c.method, c.body, code, got, s.lastCall(), c.code, c.want, c.record)
		}
	}
}

func TestWatch(t *testing.T) {
	s := newStub()
	srv := serve(t, s)
	entry := &brig.Entry{Name: "a", Path: "/tmp/a", Type: brig.RegularFile, Mode: 0o600}
	go func() {
		s.changes <- brig.FileChange{Name: "a", Kinds: []brig.ChangeKind{brig.Written, brig.Created, brig.Vanished}, Entry: entry}
	}()
	const info = `"entry":{"name":"a","type":"FILE_TYPE_FILE","path":"/tmp/a","mode":384,"permissions":"-rw-------"}`
	transcript(t, stream(t, srv.URL, "/filesystem.Filesystem/WatchDir", `{"path":"/tmp","includeEntry":true}`, "Connect-Timeout-Ms", "300"),
		`{"start":{}}`,
		`{"filesystem":{"name":"a","type":"EVENT_TYPE_CREATE",`+info+`}}`,
		`{"filesystem":{"name":"a","type":"EVENT_TYPE_WRITE",`+info+`}}`,
		`{"filesystem":{"name":"a","type":"EVENT_TYPE_REMOVE"}}`,
		`!{"error":{"code":"deadline_exceeded","message":"the time of 300ms is up"}}`)
	s.failWith(brig.Errorf(brig.NotFound, "no"))
	transcript(t, stream(t, srv.URL, "/filesystem.Filesystem/WatchDir", `{"path":"gone"}`),
		`!{"error":{"code":"not_found","message":"file not found: /home/user/gone"}}`)
}

func TestWatchers(t *testing.T) {
	s := newStub()
	srv := serve(t, s)
	c := filesystempb.NewFilesystemClient(&http.Client{Transport: bearer{}}, srv.URL) // this client uses the binary codec
	made, err := c.CreateWatcher(t.Context(), &filesystempb.CreateWatcherRequest{Path: "/tmp"})
	if err != nil || len(made.WatcherId) != 21 || made.WatcherId[0] != 'w' {
		t.Fatal(made, err)
	}
	const many = 10_000
	change := func(i int) {
		s.changes <- brig.FileChange{Name: fmt.Sprint(i), Kinds: []brig.ChangeKind{brig.Created}, Entry: &brig.Entry{Name: "x"}}
	}
	for i := range many {
		change(i)
	}
	time.Sleep(50 * time.Millisecond) // storing the last event takes some time
	got, err := c.GetWatcherEvents(t.Context(), &filesystempb.GetWatcherEventsRequest{WatcherId: made.WatcherId})
	if err != nil || len(got.Events) != many || got.Events[0].Name != "0" || got.Events[0].Entry != nil {
		t.Fatalf("%d events, %v", len(got.GetEvents()), err)
	}
	if got, err = c.GetWatcherEvents(t.Context(), &filesystempb.GetWatcherEventsRequest{WatcherId: made.WatcherId}); err != nil || len(got.Events) != 0 {
		t.Fatalf("asked again: %v, %v", got, err)
	}
	// A client that misses events gets an error.
	for i := range many + 1 {
		change(i)
	}
	if err := pollUntilError(t, c, made.WatcherId); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "too many events") {
		t.Errorf("after too many events: %v", err)
	}
	if _, err := c.RemoveWatcher(t.Context(), &filesystempb.RemoveWatcherRequest{WatcherId: made.WatcherId}); err != nil {
		t.Fatal(err)
	}
	_, err = c.GetWatcherEvents(t.Context(), &filesystempb.GetWatcherEventsRequest{WatcherId: made.WatcherId})
	if connect.CodeOf(err) != connect.CodeNotFound || !strings.HasSuffix(err.Error(), "watcher with id "+made.WatcherId+" not found") {
		t.Fatal(err)
	}
	s.failWith(brig.Errorf(brig.NotFound, "no"))
	if _, err := c.CreateWatcher(t.Context(), &filesystempb.CreateWatcherRequest{Path: "/gone"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Fatal(err)
	}
	for range 64 {
		if made, err = c.CreateWatcher(t.Context(), &filesystempb.CreateWatcherRequest{Path: "/tmp"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.CreateWatcher(t.Context(), &filesystempb.CreateWatcherRequest{Path: "/tmp"}); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatal(err)
	}
	s.endSandbox()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, err := c.GetWatcherEvents(t.Context(), &filesystempb.GetWatcherEventsRequest{WatcherId: made.WatcherId})
		if connect.CodeOf(err) == connect.CodeNotFound {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the watchers of a dead sandbox live on")
		}
	}
}

// pollUntilError polls a watcher until it returns an error.
func pollUntilError(t *testing.T, c filesystempb.FilesystemClient, id string) error {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if _, err := c.GetWatcherEvents(t.Context(), &filesystempb.GetWatcherEventsRequest{WatcherId: id}); err != nil {
			return err
		}
	}
	t.Fatal("the watcher has no error")
	return nil
}

// TestWatcherReportsEventsBeforeRemoval verifies that polls return the events that preceded the
// end of a watch, and then an error with the reason of the end. Control: a watcher whose
// directory still exists returns no error.
func TestWatcherReportsEventsBeforeRemoval(t *testing.T) {
	s := newStub()
	srv := serve(t, s)
	c := filesystempb.NewFilesystemClient(&http.Client{Transport: bearer{}}, srv.URL)
	made, err := c.CreateWatcher(t.Context(), &filesystempb.CreateWatcherRequest{Path: "/tmp"})
	if err != nil {
		t.Fatal(err)
	}
	s.changes <- brig.FileChange{Name: "a", Kinds: []brig.ChangeKind{brig.Created}}
	for range 3 {
		if _, err := c.GetWatcherEvents(t.Context(), &filesystempb.GetWatcherEventsRequest{WatcherId: made.WatcherId}); err != nil {
			t.Fatalf("control: %v", err)
		}
	}
	s.changes <- brig.FileChange{Name: "b", Kinds: []brig.ChangeKind{brig.Created}}
	s.watchFails <- brig.Errorf(brig.NotFound, "path '/tmp': the watched directory was removed or moved")
	got, err := c.GetWatcherEvents(t.Context(), &filesystempb.GetWatcherEventsRequest{WatcherId: made.WatcherId})
	if err != nil || len(got.Events) != 1 || got.Events[0].Name != "b" {
		t.Errorf("the poll after the end: %v, %v", got, err)
	}
	for range 2 {
		if err := pollUntilError(t, c, made.WatcherId); connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "removed or moved") {
			t.Errorf("after the last event: %v", err)
		}
	}
	if _, err := c.RemoveWatcher(t.Context(), &filesystempb.RemoveWatcherRequest{WatcherId: made.WatcherId}); err != nil {
		t.Errorf("remove the watcher: %v", err)
	}
}

// bearer is a transport that adds the token. If http2 is set, requests use it.
type bearer struct{ http2 http.RoundTripper }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("X-Access-Token", token)
	if b.http2 != nil {
		return b.http2.RoundTrip(r)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// The server supports HTTP/2 with the binary codec and a client stream.
func TestHTTP2(t *testing.T) {
	s := newStub()
	s.list = []*brig.ProcessInfo{{PID: 42}}
	srv := serve(t, s)
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	c := processpb.NewProcessClient(&http.Client{Transport: bearer{h2}}, srv.URL)
	in, err := c.StreamInput(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Pid{Pid: 42}}
	for _, m := range []*processpb.StreamInputRequest{
		{Event: &processpb.StreamInputRequest_Start{Start: &processpb.StreamInputRequest_StartEvent{Process: pid}}},
		{Event: &processpb.StreamInputRequest_Keepalive{}},
		{Event: &processpb.StreamInputRequest_Data{Data: &processpb.StreamInputRequest_DataEvent{
			Input: &processpb.ProcessInput{Input: &processpb.ProcessInput_Stdin{Stdin: []byte("y")}}}}},
	} {
		if err := in.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.CloseAndReceive(); err != nil || s.lastCall() != "input y" {
		t.Fatal(err, s.lastCall())
	}

	s.attach = func(context.Context, int64, func(brig.ProcessEvent) error) error {
		<-s.ended
		return brig.Errorf(brig.NotFound, "no such sandbox")
	}
	out, err := c.Start(t.Context(), &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "x"}})
	if err != nil || !out.Receive() || out.Msg().GetEvent().GetStart().GetPid() != 42 {
		t.Fatal(out.Msg(), err)
	}
	s.endSandbox()
	if out.Receive() || !strings.Contains(fmt.Sprint(out.Err()), "INTERNAL_ERROR") { // the stream was reset
		t.Errorf("after the end: %v", out.Err())
	}
}
