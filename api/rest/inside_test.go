package rest_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
)

// TestClientFileAndProcessRequests checks that the Service receives the client's
// requests for files and processes in a sandbox.
func TestClientFileAndProcessRequests(t *testing.T) {
	s, c := pair(t)
	ctx := t.Context()
	files, procs := c.Files("box"), c.Processes("box")
	odd := brig.Path{Name: "/w/a b&ü?#%2F\n😀", User: "root"}
	text := brig.ProcessSpec{Command: brig.Command{Shell: "<&>é"}}
	for what, call := range map[string]struct {
		want any
		do   func() error
	}{
		"stat":         {pathCall{what: "stat", p: odd}, func() error { return errorOf(files.Stat(ctx, odd)) }},
		"list":         {pathCall{what: "list", p: odd, depth: 3}, func() error { return errorOf(files.List(ctx, odd, 3)) }},
		"list nothing": {pathCall{what: "list"}, func() error { return errorOf(files.List(ctx, brig.Path{}, -1)) }},
		"mkdir":        {pathCall{what: "mkdir", p: odd}, func() error { return errorOf(files.MakeDir(ctx, odd)) }},
		"move": {
			pathCall{what: "move", p: odd, to: brig.Path{Name: "b", User: "root"}},
			func() error { return errorOf(files.Move(ctx, odd, brig.Path{Name: "b", User: "root"})) },
		},
		"remove":  {pathCall{what: "remove", p: odd}, func() error { return files.Remove(ctx, odd) }},
		"compose": {[]brig.Path{odd, odd, odd}, func() error { return errorOf(files.Compose(ctx, []brig.Path{odd, odd}, odd)) }},
		"write": {
			writeCall{odd, brig.FileWrite{Mode: 0o7, Metadata: map[string]string{"a-b.c": "D e"}}, "content"},
			func() error {
				w := brig.FileWrite{Mode: 0o7, Metadata: map[string]string{"a-b.c": "D e"}}
				return errorOf(files.Write(ctx, odd, w, iotest.OneByteReader(strings.NewReader("content"))))
			},
		},
		"write nothing": {writeCall{p: odd}, func() error { return errorOf(files.Write(ctx, odd, brig.FileWrite{}, nil)) }},
		"watch": {pathCall{what: "watch", p: odd, recursive: true}, func() error {
			err := files.Watch(ctx, odd, true, func(brig.FileChange) error { return nil })
			if brig.KindOf(err) != brig.NotFound {
				return errors.Join(errors.New("the watch must say that the directory is gone"), err)
			}
			return nil
		}},
		"start":  {text, func() error { return errorOf(procs.Start(ctx, text)) }},
		"attach": {processCall{what: "attach", pid: 7, from: 3}, func() error { return procs.Attach(ctx, 7, 3, func(brig.ProcessEvent) error { return nil }) }},
		"live":   {processCall{what: "attach", pid: 7, from: -1}, func() error { return procs.Attach(ctx, 7, -5, func(brig.ProcessEvent) error { return nil }) }},
		"input":  {processCall{what: "input", pid: 7, data: "\x00\xff"}, func() error { return procs.WriteInput(ctx, 7, []byte("\x00\xff")) }},
		"empty":  {processCall{what: "input", pid: 7}, func() error { return procs.WriteInput(ctx, 7, nil) }},
		"close":  {processCall{what: "close", pid: 7}, func() error { return procs.CloseInput(ctx, 7) }},
		"signal": {processCall{what: "signal", pid: 7, data: "SIGHUP"}, func() error { return procs.Signal(ctx, 7, "SIGHUP") }},
		"resize": {
			processCall{what: "resize", pid: 7, size: brig.Terminal{Columns: 65535, Rows: 1}},
			func() error { return procs.Resize(ctx, 7, brig.Terminal{Columns: 65535, Rows: 1}) },
		},
	} {
		if err := call.do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := s.lastArguments(); !reflect.DeepEqual(got, call.want) {
			t.Errorf("%s: the service got %#v, want %#v", what, got, call.want)
		}
	}
}

// TestClientGuestResponses checks that the client returns the responses of the
// Service, including errors.
func TestClientGuestResponses(t *testing.T) {
	s, c := pair(t)
	ctx := brig.WithActor(t.Context(), brig.Actor{Tenant: "acme"})
	same := func(what string, got any, gotErr error, want any, wantErr error) {
		t.Helper()
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(gotErr, wantErr) {
			t.Errorf("%s: got %+v, %v; want %+v, %v", what, got, gotErr, want, wantErr)
		}
	}
	ours, theirs := c.Files("box"), s.Files("box")
	for _, p := range []brig.Path{{Name: "/w"}, {Name: "/none"}, {Name: "/w", User: "nobody"}} {
		got, err := ours.List(ctx, p, 1)
		want, werr := theirs.List(ctx, p, 1)
		same("list", got, err, want, werr)
		e, err := ours.MakeDir(ctx, p)
		wantE, werr := theirs.MakeDir(ctx, p)
		same("mkdir", e, err, wantE, werr)
		e, r, err := ours.Read(ctx, p, 0, -1)
		wantE, _, werr = theirs.Read(ctx, p, 0, -1)
		same("read", e, err, wantE, werr)
		if r != nil {
			r.Close()
		}
		var gotEvents, wantEvents []brig.FileChange
		err = ours.Watch(ctx, p, false, func(c brig.FileChange) error { gotEvents = append(gotEvents, c); return nil })
		werr = theirs.Watch(ctx, p, false, func(c brig.FileChange) error { wantEvents = append(wantEvents, c); return nil })
		same("watch", gotEvents, err, wantEvents, werr)
	}
	procs, wantProcs := c.Processes("box"), s.Processes("box")
	list, err := procs.List(ctx)
	wantList, werr := wantProcs.List(ctx)
	same("processes", list, err, wantList, werr)
	for _, pid := range []int{7, 9, 1} {
		var gotEvents, wantEvents []brig.ProcessEvent
		err = procs.Attach(ctx, pid, 0, func(e brig.ProcessEvent) error { gotEvents = append(gotEvents, e); return nil })
		werr = wantProcs.Attach(ctx, pid, 0, func(e brig.ProcessEvent) error { wantEvents = append(wantEvents, e); return nil })
		if n := len(gotEvents); n > 0 {
			wantEvents[len(wantEvents)-1].From, gotEvents[n-1].From = 0, 0
		}
		same("attach", gotEvents, err, wantEvents, werr)
	}
	same("signal", nil, procs.Signal(ctx, 7, "TERM"), nil, wantProcs.Signal(ctx, 7, "TERM"))
	same("input", nil, procs.WriteInput(ctx, 1, nil), nil, wantProcs.WriteInput(ctx, 1, nil))
	spec := brig.ProcessSpec{Command: brig.Command{Shell: "true"}, Terminal: &brig.Terminal{}}
	_, err = procs.Start(ctx, spec)
	_, werr = wantProcs.Start(ctx, spec)
	same("start", nil, err, nil, werr)
	for _, port := range []int{0, 8, 65536} {
		_, err := c.Dial(ctx, "box", port)
		_, werr := s.Dial(ctx, "box", port)
		same("dial", nil, err, nil, werr)
	}
}

// TestClientGuestRejectsInvalidValues checks that the client rejects values
// that the wire types cannot express.
func TestClientGuestRejectsInvalidValues(t *testing.T) {
	_, c := pair(t)
	ctx := t.Context()
	files := c.Files("box")
	f, bad := brig.Path{Name: "/f"}, brig.Path{Name: "/\xff"}
	write := func(w brig.FileWrite) error { return errorOf(files.Write(ctx, f, w, strings.NewReader("x"))) }
	for field, errs := range map[string][]error{
		"path": {
			errorOf(files.Stat(ctx, bad)), errorOf(files.MakeDir(ctx, bad)), errorOf(files.Move(ctx, f, bad)),
			errorOf(files.Compose(ctx, []brig.Path{bad}, f)),
		},
		"user":   {errorOf(files.Move(ctx, f, brig.Path{Name: "/g", User: "root"}))},
		"mode":   {write(brig.FileWrite{Mode: 0o1000})},
		"offset": {errorOf2(files.Read(ctx, f, -1, -1))},
		"metadata": {
			write(brig.FileWrite{Metadata: map[string]string{"Upper": "x"}}), write(brig.FileWrite{Metadata: map[string]string{"": "x"}}),
			write(brig.FileWrite{Metadata: map[string]string{"a b": "x"}}), write(brig.FileWrite{Metadata: map[string]string{"a": " x"}}),
			write(brig.FileWrite{Metadata: map[string]string{"a": "ü"}}), write(brig.FileWrite{Metadata: map[string]string{"a": "x\r\ny: z"}}),
		},
		"tag":    {errorOf(c.Processes("box").Start(ctx, brig.ProcessSpec{Command: brig.Command{Shell: "x"}, Tag: "\xff"}))},
		"signal": {c.Processes("box").Signal(ctx, 7, "\xff")},
	} {
		for _, err := range errs {
			if e := brig.AsError(err); e == nil || e.Kind != brig.InvalidArgument || e.Field != field {
				t.Errorf("%s: %#v", field, err)
			}
		}
	}
}

func errorOf2[A, B any](_ A, _ B, err error) error { return err }

// TestDownload verifies that a file is downloaded completely or the download ends with an
// error.
func TestDownload(t *testing.T) {
	_, c := pair(t)
	large := strings.Repeat("x", 1<<20)
	for _, x := range []struct {
		name, want string
		from, n    int64
		broken     bool
	}{
		{"f", "0123456789", 0, -1, false},
		{"f", "345", 3, 3, false},
		{"f", "", 0, 0, false},
		{"f", "", 99, -1, false},
		{"proc", "456789", 4, -1, false},
		{"sys", "0123456789", 0, -1, false},
		{"empty", "", 0, -1, false},
		{"large", large, 0, -1, false},
		{"large", large[:100_000], 5, 100_000, false},
		{"grown", large[:100_000], 0, -1, false},
		{"broken", "", 0, -1, true},
		{"unknown", "", 0, -1, true},
	} {
		e, r, err := c.Files("box").Read(t.Context(), brig.Path{Name: "/w/" + x.name}, x.from, x.n)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		if e.Path != "/w/"+x.name {
			t.Errorf("%s: the entry is %+v", x.name, e)
		}
		b, err := io.ReadAll(r)
		switch {
		case x.broken && (brig.KindOf(err) != brig.ConnectionFailed || len(b) >= len(large)):
			t.Errorf("%s was cut short: %d bytes, %v", x.name, len(b), err)
		case !x.broken && (err != nil || string(b) != x.want):
			t.Errorf("%s from %d on, %d: %d bytes, %v, want %d", x.name, x.from, x.n, len(b), err, len(x.want))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := errorOf2(c.Files("box").Read(t.Context(), brig.Path{Name: "/w/bad"}, 0, -1)); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("a file that cannot be read: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, r, err := c.Files("box").Read(ctx, brig.Path{Name: "/w/large"}, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cancel()
	if _, err := io.ReadAll(r); brig.KindOf(err) != brig.Canceled {
		t.Errorf("after the call's end: %v", err)
	}
}

// TestUpload verifies that an upload returns the error of a failing reader, and that large
// files can be uploaded.
func TestUpload(t *testing.T) {
	s, c := pair(t)
	broken := errors.New("the disk is gone")
	r := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), iotest.ErrReader(broken))
	if _, err := c.Files("box").Write(t.Context(), brig.Path{Name: "/f"}, brig.FileWrite{}, r); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
	if _, wrote := s.lastArguments().(writeCall); wrote {
		t.Error("half a file was taken for a whole one")
	}
	big := strings.Repeat("y", 8<<20)
	if _, err := c.Files("box").Write(t.Context(), brig.Path{Name: "/f"}, brig.FileWrite{}, strings.NewReader(big)); err != nil {
		t.Error(err)
	}
	if got, ok := s.lastArguments().(writeCall); !ok || got.content != big {
		t.Error("the content is not what was sent")
	}
	err := errorOf(c.Files("box").Write(t.Context(), brig.Path{Name: "/none"}, brig.FileWrite{}, strings.NewReader(big)))
	if brig.KindOf(err) != brig.NotFound {
		t.Errorf("where nothing can be written: %v", err)
	}
}

// TestGuestCancel verifies that a client may cancel a call at any time, and that this cancels
// the Service's context.
func TestGuestCancel(t *testing.T) {
	s, c := pair(t)
	enough := errors.New("enough")
	if err := c.Files("box").Watch(t.Context(), brig.Path{Name: "/wait"}, false, func(brig.FileChange) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("error of a canceled watch: %v", err)
	}
	waitForEnd(t, s)
	if err := c.Processes("box").Attach(t.Context(), 7, 0, func(brig.ProcessEvent) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("error of a canceled attachment: %v", err)
	}
	for what, f := range map[string]func(context.Context) error{
		"watch": func(ctx context.Context) error {
			return c.Files("box").Watch(ctx, brig.Path{Name: "/wait"}, false, func(brig.FileChange) error { return nil })
		},
		"attach": func(ctx context.Context) error {
			return c.Processes("box").Attach(ctx, 8, 0, func(brig.ProcessEvent) error { return nil })
		},
	} {
		for _, after := range []time.Duration{100 * time.Millisecond, 400 * time.Millisecond} { // before and after the response begins
			if err := f(cancelAfter(t, s, after)); brig.KindOf(err) != brig.Canceled {
				t.Errorf("%s: %v", what, err)
			}
			waitForEnd(t, s)
		}
	}
}

// TestAttachToSilentProcess checks that a client that attaches to a silent
// process soon receives the response header.
func TestAttachToSilentProcess(t *testing.T) {
	s, srv := serve(t)
	req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/v1/sandboxes/box/processes/8/output", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 16)
	if _, err := io.ReadFull(resp.Body, line); err != nil || string(line) != `{"event":"ping"}` {
		t.Errorf("it says %q, %v", line, err)
	}
	_ = resp.Body.Close()
	waitForEnd(t, s)
}

// TestDial verifies that both directions of a connection transmit bytes and can be closed
// separately.
func TestDial(t *testing.T) {
	s, c := pair(t)
	conn, err := c.Dial(t.Context(), "box", 7)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil || conn.RemoteAddr() == nil || conn.LocalAddr() == nil {
		t.Errorf("the connection has no deadlines or addresses: %v", err)
	}
	sent := strings.Repeat("hello ", 100_000)
	if _, err := io.WriteString(conn, sent); err != nil {
		t.Fatal(err)
	}
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		t.Fatal("the connection cannot be half closed")
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != strings.ToUpper(sent) {
		t.Errorf("it answers %d bytes, %v", len(got), err)
	}
	waitForEnd(t, s)
	// The peer closes first.
	conn, err = c.Dial(t.Context(), "box", 9)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "bye" {
		t.Errorf("it says %q, %v", got, err)
	}
	waitForEnd(t, s)
	// A connection outlives the call that opened it.
	ctx, cancel := context.WithCancel(t.Context())
	conn, err = c.Dial(ctx, "box", 7)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); !isTimeout(err) {
		t.Errorf("after the call: %v", err)
	}
	conn.Close()
	waitForEnd(t, s)
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// TestDialKeepsEarlyData checks that bytes sent with the request are not lost.
func TestDialKeepsEarlyData(t *testing.T) {
	_, srv := serve(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	_, err = io.WriteString(conn, "GET /v1/sandboxes/box/ports/7 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+key+
		"\r\nConnection: keep-alive, Upgrade\r\nUpgrade: TCP\r\n\r\nearly")
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	readUntil(t, r, "HTTP/1.1 101 ")
	readUntil(t, r, "Upgrade: tcp") // only an id and an empty line follow
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // not earlier, because closing an unanswered request cancels it
	}
	got, err := io.ReadAll(r)
	if err != nil || !bytes.HasSuffix(got, []byte("\r\n\r\nEARLY")) {
		t.Errorf("it answers %q, %v", got, err)
	}
}

// TestDialWithoutUpgrade verifies that the client returns an error if the server does not
// upgrade the connection.
func TestDialWithoutUpgrade(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
	defer srv.Close()
	c := dial(t, client.Options{URL: srv.URL, Key: key})
	if _, err := c.Dial(t.Context(), "box", 7); brig.KindOf(err) != brig.ConnectionFailed {
		t.Errorf("got %v", err)
	}
	if _, _, err := c.Files("box").Read(t.Context(), brig.Path{Name: "/f"}, 0, -1); brig.KindOf(err) != brig.ConnectionFailed {
		t.Errorf("a download without an entry: %v", err)
	}
}
