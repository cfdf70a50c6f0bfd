package rest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
	"github.com/brig-run/brig/internal/testenv"
)

func dial(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pair(t *testing.T) (*stub, *client.Client) {
	t.Helper()
	s, srv := serve(t)
	return s, dial(t, client.Options{URL: srv.URL + "/", Key: key})
}

// TestClientRequests checks that the Service receives the client's requests.
func TestClientRequests(t *testing.T) {
	s, c := pair(t)
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	rules := brig.Egress{Bandwidth: brig.MiB, Rules: []brig.EgressRule{
		{Host: "*.a.test", Ports: []int{443}, Methods: []string{"GET"}, Paths: []string{"/<&>"}}, {Deny: true, CIDR: "10.0.0.0/8"},
	}}
	for what, call := range map[string]struct {
		want any
		do   func()
	}{
		"create": {brig.Spec{
			Name: "web", Image: "host", Env: map[string]string{"A": "b"}, Labels: map[string]string{"x": "y"}, TTL: time.Minute,
			Require:   brig.Requirement{brig.AreaMemory: brig.LevelBoundary, brig.AreaEgress: brig.LevelGaps},
			Placement: brig.Placement{Prefer: brig.PreferRegion, Regions: []string{"eu"}},
			Limits:    brig.Limits{Memory: 64 * brig.MiB, CPUs: 0.5, Processes: 9, OpenFiles: 99, Disk: brig.GiB, Output: brig.MiB},
			Command:   &brig.Command{Argv: []string{"a", "b c"}, Env: map[string]string{"A": "c"}, Dir: "/", User: "root", Timeout: time.Second},
		}, nil},
		"list": {brig.ListOptions{Labels: map[string]string{"a": "b=c"}, States: []brig.State{brig.Running, brig.Ended}, Limit: 7, Cursor: "x y"}, nil},
		"exec": {brig.Command{Argv: []string{"echo", "<&>é"}, Env: map[string]string{"A": ""}, Dir: "/tmp", User: "user", Timeout: 5 * time.Millisecond, Survive: true}, nil},
		"run": {brig.Program{
			Language: brig.Python, Code: "print(1)\n", SandboxName: "py", Image: "host", Arguments: []byte(`{"b":1,"a":2.50}`), User: "root",
			Env: map[string]string{"A": "b"}, Files: []brig.File{{Path: "a", Data: []byte("\x00\xff"), Mode: 0o755}, {Path: "empty", Data: []byte{}}},
			Limits: brig.Limits{Memory: 64 * brig.MiB}, Timeout: time.Second, Labels: map[string]string{"x": "y"},
			Require: brig.Requirement{brig.AreaDisk: brig.LevelNone}, Placement: brig.Placement{Provider: "e2b", Only: true},
		}, nil},
		"command":      {brig.Program{Command: []string{"true"}}, nil},
		"extend":       {90 * time.Second, func() { must(c.Extend(ctx, "box", 90*time.Second)) }},
		"egress":       {rules, func() { must(c.SetEgress(ctx, "box", rules)) }},
		"no egress":    {brig.Egress{}, func() { must(c.SetEgress(ctx, "box", brig.Egress{})) }},
		"attest":       {"box", func() { must(c.Attest(ctx, "box")) }},
		"stop":         {1500 * time.Millisecond, func() { must(c.Stop(ctx, "box", 1500*time.Millisecond)) }},
		"logs":         {brig.LogOptions{Tail: 3, Times: true}, nil},
		"followed log": {brig.LogOptions{Tail: 2, Follow: true}, nil},
		"image":        {"a/b:c%2F d", func() { must(c.GetImage(ctx, "a/b:c%2F d")) }},
		"remove image": {"sha256:aa", func() { must(nil, c.RemoveImage(ctx, "sha256:aa")) }},
		"context": {
			brig.ContextSpec{Language: brig.Bash, Dir: "/tmp", Env: map[string]string{"A": "b"}},
			func() {
				must(c.CreateContext(ctx, "box", brig.ContextSpec{Language: brig.Bash, Dir: "/tmp", Env: map[string]string{"A": "b"}}))
			},
		},
		"code":              {brig.Code{Language: brig.Python, Source: "<&>é\n", Env: map[string]string{"A": ""}, Timeout: 5 * time.Millisecond}, nil},
		"code in a context": {brig.Code{Context: "cx/1 ?", Source: "1"}, nil},
		"interrupt":         {"cx/1 ?", func() { must(nil, c.InterruptContext(ctx, "box", "cx/1 ?")) }},
		"restart":           {"cx/1 ?", func() { must(c.RestartContext(ctx, "box", "cx/1 ?")) }},
		"remove context":    {"cx/1 ?", func() { must(nil, c.RemoveContext(ctx, "box", "cx/1 ?")) }},
		"build":             {brig.ImageBuild{Name: "py", Packages: []string{"python3"}, Suite: "bookworm"}, nil},
	} {
		switch want := call.want.(type) {
		case brig.Spec:
			must(c.Create(ctx, want))
		case brig.ListOptions:
			must(c.List(ctx, want))
		case brig.Command:
			must(c.Exec(ctx, "box", want, brig.IO{}))
		case brig.Program:
			must(c.Run(ctx, want, brig.IO{}))
		case brig.Code:
			must(c.RunCode(ctx, "box", want, func(brig.CodeEvent) error { return nil }))
			if got := s.lastArguments(); !reflect.DeepEqual(got, want) {
				t.Errorf("%s with events: the service got %#v, want %#v", what, got, want)
			}
			must(c.RunCode(ctx, "box", want, nil))
		case brig.ImageBuild:
			must(c.BuildImage(ctx, want, nil))
		case brig.LogOptions:
			r, err := c.Logs(ctx, "box", want)
			must(r, err)
			if b, _ := io.ReadAll(r); string(b) != "one\ntwo\n" || r.Close() != nil {
				t.Errorf("the log is %q", b)
			}
		default:
			call.do()
		}
		if got := s.lastArguments(); !reflect.DeepEqual(got, call.want) {
			t.Errorf("%s: the service got %#v, want %#v", what, got, call.want)
		}
	}
}

// TestClientResponses checks that the client returns the responses of the
// Service.
func TestClientResponses(t *testing.T) {
	s, c := pair(t)
	ctx := brig.WithActor(t.Context(), brig.Actor{Tenant: "acme"})
	same := func(what string, got any, gotErr error, want any, wantErr error) {
		t.Helper()
		if gotErr != nil || wantErr != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v, %v", what, got, gotErr, want, wantErr)
		}
	}
	got, err := c.Stop(ctx, "box", 0)
	want, werr := s.Stop(ctx, "box", 0)
	same("sandbox", got, err, want, werr)
	page, err := c.List(ctx, brig.ListOptions{})
	wantPage, werr := s.List(ctx, brig.ListOptions{})
	same("list", page, err, wantPage, werr)
	for _, argv := range [][]string{{"echo", "hi"}, {"split"}, {"cut"}} {
		res, err := c.Exec(ctx, "box", brig.Command{Argv: argv}, brig.IO{})
		wantRes, werr := s.Exec(ctx, "box", brig.Command{Argv: argv}, brig.IO{})
		same(argv[0], res, err, wantRes, werr)
	}
	cx, err := c.RestartContext(ctx, "box", "cx1")
	wantCx, werr := s.RestartContext(ctx, "box", "cx1")
	same("context", cx, err, wantCx, werr)
	list, err := c.Contexts(ctx, "box")
	wantList, werr := s.Contexts(ctx, "box")
	same("contexts", list, err, wantList, werr)
	templates, err := c.Templates(ctx)
	wantTemplates, werr := s.Templates(ctx)
	same("templates", templates, err, wantTemplates, werr)
	shelves, err := c.Pool(ctx)
	wantShelves, werr := s.Pool(ctx)
	same("pool", shelves, err, wantShelves, werr)
	var gotEvents, wantEvents []brig.CodeEvent
	hear := func(to *[]brig.CodeEvent) func(brig.CodeEvent) error {
		return func(e brig.CodeEvent) error {
			if e.Started != nil { // no other field is known at that point
				e.Started = &brig.CodeResult{Context: e.Started.Context, Count: e.Started.Count}
			}
			*to = append(*to, e)
			return nil
		}
	}
	code, err := c.RunCode(ctx, "box", brig.Code{Source: "1"}, hear(&gotEvents))
	wantCode, werr := s.RunCode(ctx, "box", brig.Code{Source: "1"}, hear(&wantEvents))
	same("code", code, err, wantCode, werr)
	same("events", gotEvents, nil, wantEvents, nil)
	code, err = c.RunCode(ctx, "box", brig.Code{Source: "1"}, nil)
	same("code without events", code, err, wantCode, nil)
	enough := errors.New("enough")
	if _, err := c.RunCode(ctx, "box", brig.Code{Source: "1"}, func(brig.CodeEvent) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("error of a canceled stream: %v", err)
	}
	x, err := c.GetExec(ctx, "box", "x1")
	wantX, werr := s.GetExec(ctx, "box", "x1")
	same("execution", x, err, wantX, werr)
	for _, code := range []string{"1", "raise"} {
		p := brig.Program{Language: brig.Python, Code: code}
		o, err := c.Run(ctx, p, brig.IO{})
		wantO, werr := s.Run(ctx, p, brig.IO{})
		same("outcome", o, err, wantO, werr)
	}
	images, err := c.Images(ctx)
	wantImages, werr := s.Images(ctx)
	same("images", images, err, wantImages, werr)
}

func TestClientStreams(t *testing.T) {
	_, c := pair(t)
	var out, value bytes.Buffer
	if _, err := c.Exec(t.Context(), "box", brig.Command{Argv: []string{"split"}}, brig.IO{Stdout: &out}); err != nil || out.String() != "café €\xff\xfeok\xc3" {
		t.Errorf("the stream is %q, %v", out.String(), err)
	}
	if _, err := c.Exec(t.Context(), "box", brig.Command{Argv: []string{"three"}}, brig.IO{Result: &value}); err != nil || value.String() != `{"a":1}` {
		t.Errorf("descriptor 3 is %q, %v", value.String(), err)
	}
	// The process answers each line before the next line is sent.
	qr, qw := io.Pipe()
	ar, aw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), "box", brig.Command{Argv: []string{"parrot"}}, brig.IO{Stdin: qr, Stdout: aw})
		done <- errors.Join(err, aw.Close())
	}()
	for _, word := range []string{"one", "two"} {
		buf := make([]byte, 3)
		if _, err := io.WriteString(qw, word); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(ar, buf); err != nil || string(buf) != word {
			t.Fatalf("%q came back as %q, %v", word, buf, err)
		}
	}
	_ = qw.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	// A process that ends while its input is still open ends the call.
	qr, qw = io.Pipe()
	defer qw.Close()
	if _, err := c.Exec(t.Context(), "box", brig.Command{Argv: []string{"echo"}}, brig.IO{Stdin: qr, Stdout: io.Discard}); err != nil {
		t.Error(err)
	}
	var steps []brig.Progress
	_, err := c.ImportImage(t.Context(), "box", strings.NewReader(strings.Repeat("x", 1<<20)), func(p brig.Progress) { steps = append(steps, p) })
	if err != nil || !reflect.DeepEqual(steps, []brig.Progress{{Step: "unpack", Done: 5}}) {
		t.Errorf("import: %v, %v", steps, err)
	}
}

func TestClientErrors(t *testing.T) {
	_, c := pair(t)
	_, err := c.Create(t.Context(), brig.Spec{Name: "taken"})
	if e := brig.AsError(err); e == nil || !reflect.DeepEqual(*e, brig.Error{Kind: brig.AlreadyExists, Message: "the name is taken", Hint: "pick another"}) {
		t.Errorf("got %#v", err)
	}
	for what, f := range map[string]func() error{
		"late": func() error {
			return errorOf(c.Exec(t.Context(), "box", brig.Command{Argv: []string{"late"}}, brig.IO{Stdout: io.Discard}))
		},
		"no name": func() error { return errorOf(c.Get(t.Context(), "")) },
		"dots":    func() error { return errorOf(c.Get(t.Context(), "..")) },
		"slash":   func() error { return errorOf(c.Get(t.Context(), "box/logs")) },
		"text": func() error {
			return errorOf(c.Exec(t.Context(), "box", brig.Command{Argv: []string{"\xff"}}, brig.IO{}))
		},
		"NaN": func() error { return errorOf(c.Create(t.Context(), brig.Spec{Limits: brig.Limits{CPUs: math.NaN()}})) },
		"import": func() error {
			return errorOf(c.ImportImage(t.Context(), "B", strings.NewReader(strings.Repeat("x", 4<<20)), nil))
		},
	} {
		want := map[string]brig.Kind{"late": brig.FailedPrecondition, "text": brig.InvalidArgument, "NaN": brig.InvalidArgument, "import": brig.InvalidArgument}[what]
		if want == "" {
			want = brig.NotFound
		}
		if err := f(); brig.KindOf(err) != want {
			t.Errorf("%s: %v of kind %s, want %s", what, err, brig.KindOf(err), want)
		}
	}
	broken := errors.New("broken pipe")
	if _, err := c.Exec(t.Context(), "box", brig.Command{Argv: []string{"echo", "x"}}, brig.IO{Stdout: failing{broken}}); !errors.Is(err, broken) {
		t.Errorf("a writer that fails: %v", err)
	}
}

func errorOf[T any](_ T, err error) error { return err }

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestClientConnection(t *testing.T) {
	for _, u := range []string{"", "localhost:2744", "ftp://x", "http://", "http://a b", "http://u:p@x", "http://x?y"} {
		if _, err := client.New(client.Options{URL: u}); brig.KindOf(err) != brig.InvalidArgument {
			t.Errorf("URL %q: %v", u, err)
		}
	}
	// Each of these servers differs from a Brig server in a different way.
	for what, h := range map[string]http.HandlerFunc{
		"not found": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", 404) },
		"not JSON":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"redirect":  func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://127.0.0.1:1/", 302) },
		"cut stream": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"event":"started","exec":"x"}`+"\n")
		},
	} {
		srv := httptest.NewServer(h)
		c := dial(t, client.Options{URL: srv.URL, Key: key})
		_, err := c.Exec(t.Context(), "box", brig.Command{Argv: []string{"echo"}}, brig.IO{Stdout: io.Discard})
		if e := brig.AsError(err); e == nil || e.Kind != brig.ConnectionFailed || !strings.Contains(e.Hint, srv.URL) {
			t.Errorf("%s: %#v", what, err)
		}
		srv.Close()
		gone := dial(t, client.Options{URL: fmt.Sprintf("http://127.0.0.1:%d", testenv.ClosedPort(t)), Key: key})
		_, err = gone.Get(t.Context(), "box")
		if e := brig.AsError(err); e == nil || e.Kind != brig.ConnectionFailed || !strings.Contains(e.Hint, "brig serve") {
			t.Errorf("an unreachable server: %#v", err)
		}
	}
	// Test a server under a path prefix.
	_, srv := serve(t)
	outer := httptest.NewServer(http.StripPrefix("/brig", srv.Config.Handler))
	defer outer.Close()
	if _, err := dial(t, client.Options{URL: outer.URL + "/brig", Key: key}).Get(t.Context(), "box"); err != nil {
		t.Error(err)
	}
	if _, err := dial(t, client.Options{URL: srv.URL}).Get(t.Context(), "box"); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("without a key: %v", err)
	}
}

func TestClientCancel(t *testing.T) {
	s, c := pair(t)
	for what, f := range map[string]func(context.Context) error{
		"exec": func(ctx context.Context) error {
			return errorOf(c.Exec(ctx, "box", brig.Command{Argv: []string{"wait"}}, brig.IO{}))
		},
		"stream": func(ctx context.Context) error {
			return errorOf(c.Exec(ctx, "box", brig.Command{Argv: []string{"wait"}}, brig.IO{Stdout: io.Discard}))
		},
		"stdin": func(ctx context.Context) error {
			pr, pw := io.Pipe()
			defer pw.Close()
			return errorOf(c.Exec(ctx, "box", brig.Command{Argv: []string{"wait"}}, brig.IO{Stdin: pr}))
		},
		"run": func(ctx context.Context) error {
			return errorOf(c.Run(ctx, brig.Program{Language: brig.Bash, Code: "wait"}, brig.IO{}))
		},
	} {
		if err := f(cancelAfter(t, s, 10*time.Millisecond)); brig.KindOf(err) != brig.Canceled {
			t.Errorf("%s: %v", what, err)
		}
		waitForEnd(t, s)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.Exec(ctx, "box", brig.Command{Argv: []string{"wait"}}, brig.IO{}); brig.KindOf(err) != brig.Timeout {
		t.Errorf("a deadline: %v", err)
	}
	waitForEnd(t, s)
}
