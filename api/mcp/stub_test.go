package mcp_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/mcp"
)

// Two members of one tenant and a member of another tenant own these keys.
const (
	annsKey  = "brig_ann_0123456789012345678901234567890123456789"
	bobsKey  = "brig_bob_0123456789012345678901234567890123456789"
	rivalKey = "brig_rival_0123456789012345678901234567890123456789"
)

// keys accepts the keys of these tests until they are revoked.
type keys struct{ revoked atomic.Bool }

// KeyActor implements httpapi.Keys.
func (k *keys) KeyActor(_ context.Context, hash [32]byte) (brig.Actor, error) {
	for key, a := range map[string]brig.Actor{
		annsKey: {Name: "ann", Tenant: "acme", Role: brig.Member, Key: "k1"}, bobsKey: {Name: "bob", Tenant: "acme", Role: brig.Member, Key: "k2"},
		rivalKey: {Name: "eve", Tenant: "rival", Role: brig.Member, Key: "k3"},
	} {
		if hash == sha256.Sum256([]byte(key)) && !k.revoked.Load() {
			return a, nil
		}
	}
	return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "nobody has this key")
}

// stub is a Service whose responses depend on the arguments. Methods that are
// not scripted panic.
type stub struct {
	brig.Service
	begun, ended chan string
	release      chan struct{}
	released     chan struct{} // closed when a session no longer uses the sandbox
}

func newStub() *stub {
	return &stub{begun: make(chan string, 100), ended: make(chan string, 100), release: make(chan struct{}), released: make(chan struct{})}
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func outputOf(s string) brig.Output { return brig.Output{Head: []byte(s), Total: int64(len(s))} }

// wait waits until the stub is released or ctx ends.
func (s *stub) wait(ctx context.Context) error {
	s.begun <- brig.ActorFrom(ctx).Name
	select {
	case <-ctx.Done():
		s.ended <- brig.ActorFrom(ctx).Name
		return context.Cause(ctx)
	case <-s.release:
		return nil
	}
}

// Run implements brig.Service.
func (s *stub) Run(ctx context.Context, p brig.Program, sio brig.IO) (*brig.Outcome, error) {
	o := &brig.Outcome{Sandbox: "py-1"}
	o.Done, o.Duration = true, 12*time.Millisecond
	switch {
	case p.Code == "wait":
		return o, s.wait(ctx)
	case p.Code == "panic":
		panic("a panic")
	case p.Code == "internal":
		return nil, io.ErrShortBuffer
	case p.Code == "fail":
		o.ExitCode, o.Stderr, o.Error = 1, outputOf("a warning\nTraceback\nValueError: no\n"), &brig.ProgramError{Name: "ValueError", Message: "no", Traceback: "Traceback\nValueError: no\n"}
	case p.Code == "slow":
		o.TimedOut, o.ExitCode = true, 124
	case p.Code == "files":
		o.Artifacts = []brig.File{{Path: "a b.png", Data: []byte("\x89PNG")}, {Path: "a.csv", Data: []byte("a,b\n")}, {Path: "empty.json"}}
		o.Skipped = []string{"large.csv"}
	case p.Code == "long":
		o.Stdout = brig.Output{Head: bytes.Repeat([]byte("h"), 500_000), Tail: bytes.Repeat([]byte("t"), 500_000), Total: 3_000_000}
	case p.Code == "talk":
		for range 4 {
			if _, err := io.WriteString(sio.Stdout, "said\n"); err != nil {
				return nil, err
			}
			time.Sleep(300 * time.Millisecond)
		}
	case p.Command != nil:
		o.Stdout = outputOf(strings.Join(p.Command[3:], " ") + "\n")
	default:
		o.Stdout, o.Value = outputOf(string(p.Language)+" for "+brig.ActorFrom(ctx).Name+"\n"), p.Arguments
	}
	return o, nil
}

func errMissing(name string) error {
	if name == "box" {
		return nil
	}
	return brig.Errorf(brig.NotFound, "no sandbox %q", brig.Clip(name, 63)).WithHint("list sandboxes")
}

// RunCode implements brig.Service.
func (s *stub) RunCode(ctx context.Context, name string, c brig.Code, _ func(brig.CodeEvent) error) (*brig.CodeResult, error) {
	if err := errMissing(name); err != nil {
		return nil, err
	}
	r := &brig.CodeResult{Context: "default-python", Count: 1, Duration: 1500 * time.Millisecond}
	text := func(s string) json.RawMessage { return json.RawMessage(strconv.Quote(s)) }
	switch c.Source {
	case "wait":
		return r, s.wait(ctx)
	case "figure":
		r.Outputs = []brig.Rich{
			{Data: map[string]json.RawMessage{"text/plain": text("<Figure>"), "image/png": text("iVBORw==\n")}},
			{Data: map[string]json.RawMessage{"text/plain": text("shown")}},
			{Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`{"not":"text"}`), "image/png": text("!!")}, Main: true},
		}
	case "lost":
		r.Lost, r.TimedOut = true, true
		r.Error = &brig.CodeError{Name: "KeyboardInterrupt", Traceback: "Traceback\nKeyboardInterrupt"}
	default:
		r.Outputs = []brig.Rich{{Data: map[string]json.RawMessage{"text/plain": text("42")}, Main: true}}
	}
	return r, nil
}

// Exec implements brig.Service.
func (s *stub) Exec(ctx context.Context, name string, c brig.Command, sio brig.IO) (*brig.Result, error) {
	if err := errMissing(name); err != nil {
		return nil, err
	}
	if sio.Stdin != nil {
		b, err := io.ReadAll(sio.Stdin)
		return &brig.Result{ExecID: "x1", Stdout: outputOf(string(b)), Done: true}, err
	}
	return &brig.Result{ExecID: "x1", ExitCode: 3, Stdout: outputOf(c.Shell + " in " + c.Dir + "\n"), Stderr: outputOf("bad\n"), Done: true}, nil
}

// Create implements brig.Service.
func (s *stub) Create(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	if uses := brig.SessionUsesFrom(ctx); uses != nil { // as the engine does
		uses.Add("sb1", func() func() { return func() { close(s.released) } })
	}
	return &brig.Sandbox{ID: "sb1", Spec: spec, State: brig.Running, Created: noon, Expires: noon.Add(spec.TTL)}, nil
}

// Pause implements brig.Service.
func (s *stub) Pause(ctx context.Context, name string, o brig.PauseOptions) (*brig.Sandbox, error) {
	box, err := s.Resume(ctx, name)
	box.State, box.Pause = brig.Paused, &brig.Pause{At: noon, Bytes: 6 << 20, Left: time.Minute, FilesOnly: o.FilesOnly}
	return box, err
}

// Resume implements brig.Service.
func (s *stub) Resume(ctx context.Context, name string) (*brig.Sandbox, error) {
	box, _ := s.Create(ctx, brig.Spec{Name: name, Image: "host", TTL: time.Hour})
	return box, errMissing(name)
}

// Fork implements brig.Service.
func (s *stub) Fork(ctx context.Context, name string, o brig.ForkSpec) ([]*brig.Sandbox, error) {
	if o.Count > brig.MaxForks {
		return nil, brig.InvalidField("count", "%d is out of bounds", o.Count).WithHint("give 1 to %d", brig.MaxForks)
	}
	var copies []*brig.Sandbox
	for i := range max(o.Count, 1) {
		box, _ := s.Create(ctx, brig.Spec{Name: cmp.Or(o.Name, name+"-"+strconv.Itoa(i)), Image: "host", Labels: o.Labels, TTL: o.TTL})
		if box.Origin = "sb1"; o.Paused {
			box.State, box.Pause = brig.Paused, &brig.Pause{At: noon, Bytes: 6 << 20, Left: o.TTL}
		}
		copies = append(copies, box)
	}
	return copies, errMissing(name)
}

// Get implements brig.Service.
func (s *stub) Get(_ context.Context, name string) (*brig.Sandbox, error) {
	return &brig.Sandbox{ID: "sb1", Spec: brig.Spec{Name: name, Image: "host"}, State: brig.Ended, Created: noon, Exit: &brig.Exit{Reason: brig.Killed}}, errMissing(name)
}

// List implements brig.Service.
func (s *stub) List(ctx context.Context, o brig.ListOptions) (*brig.Page, error) {
	box, err := s.Create(ctx, brig.Spec{Name: "box", Image: "host", TTL: time.Hour, Labels: o.Labels})
	if len(o.States) == 1 {
		box.State = o.States[0]
	}
	return &brig.Page{Sandboxes: []*brig.Sandbox{box}, Next: "more"}, err
}

// Remove implements brig.Service.
func (s *stub) Remove(_ context.Context, name string) error { return errMissing(name) }

// Logs implements brig.Service.
func (s *stub) Logs(_ context.Context, name string, o brig.LogOptions) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("one\ntwo\n")), errMissing(name)
}

// Images implements brig.Service.
func (s *stub) Images(context.Context) ([]*brig.Image, error) {
	return []*brig.Image{{Digest: "sha256:0", Names: []string{"host"}, Source: "host"}}, nil
}

// Files implements brig.Service.
func (s *stub) Files(name string) brig.Files { return files{name: name} }

type files struct {
	brig.Files
	name string
}

// Read implements brig.Files.
func (f files) Read(_ context.Context, p brig.Path, from, n int64) (*brig.Entry, io.ReadCloser, error) {
	if err := errMissing(f.name); err != nil {
		return nil, nil, err
	}
	data := map[string]string{"/workspace/a.txt": "the text", "/workspace/a b%.bin": "\x00\xff", "/workspace/empty.json": ""}
	text, ok := data[p.Name]
	if !ok {
		return nil, nil, brig.InvalidField("path", "there is nothing").WithHint("list files")
	}
	rest := text[min(int(from), len(text)):]
	return &brig.Entry{Path: p.Name, Type: brig.RegularFile, Size: int64(len(text))}, io.NopCloser(strings.NewReader(rest[:min(int(n), len(rest))])), nil
}

// Write implements brig.Files.
func (f files) Write(_ context.Context, p brig.Path, w brig.FileWrite, r io.Reader) (*brig.Entry, error) {
	b, err := io.ReadAll(r)
	return &brig.Entry{Path: p.Name, Type: brig.RegularFile, Size: int64(len(b)), Mode: w.Mode, Modified: noon}, err
}

// Dial implements brig.Service. An HTTP server listens on port 80. Port 81
// sends invalid data.
func (s *stub) Dial(_ context.Context, name string, port int) (net.Conn, error) {
	if err := errMissing(name); err != nil {
		return nil, err
	}
	if port > 81 {
		return nil, brig.Errorf(brig.ConnectionFailed, "no program listens on port %d", port).WithHint("start a server")
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		buf := make([]byte, 4096)
		n, _ := there.Read(buf)
		line, _, _ := strings.Cut(string(buf[:n]), "\r\n")
		if port == 81 {
			io.WriteString(there, "what?\r\n")
			return
		}
		body := line + "\n"
		io.WriteString(there, "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nConnection: close\r\n\r\n"+body)
	}()
	return here, nil
}

// serve starts the API on top of a Service.
func serve(t testing.TB, s brig.Service, change func(*mcp.Options)) (*httptest.Server, *keys) {
	t.Helper()
	k := &keys{}
	o := mcp.Options{Service: s, Keys: k, Version: "1.2.3", Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	d, err := mcp.New(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(httpapi.NewLimiter(httpapi.Limits{}).Handler(d))
	t.Cleanup(func() { cancel(); d.Close(); srv.Close() })
	return srv, k
}

type withKey string

// RoundTrip implements http.RoundTripper.
func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

// connect returns a session of the SDK's own client. With the newest protocol version, the
// server has no session.
func connect(t *testing.T, url, key string, old bool) *sdk.ClientSession {
	t.Helper()
	o := &sdk.ClientOptions{}
	c := sdk.NewClient(&sdk.Implementation{Name: "tests", Version: "1"}, o)
	so := &sdk.ClientSessionOptions{}
	if old {
		so.ProtocolVersion = "2025-11-25"
	}
	s, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url + mcp.Path, HTTPClient: &http.Client{Transport: withKey(key)}, MaxRetries: -1}, so)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
