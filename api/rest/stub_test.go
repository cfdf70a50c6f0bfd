package rest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi/transcript"
	"github.com/brig-run/brig/api/rest"
)

// key is the only key of these tests.
const key = "brig_0123456789abcdefghijklmnopqrstuvwxyzABCDEF"

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type keys struct{}

func (keys) KeyActor(_ context.Context, hash [32]byte) (brig.Actor, error) {
	if hash != sha256.Sum256([]byte(key)) {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "no such key")
	}
	return brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Operator}, nil
}

// stub is a scripted brig.Service with fixed responses that records its calls. The first word
// of a command selects the behavior.
type stub struct {
	stubTools
	ended chan error // receives the error of every "wait" and "flood"

	mu  sync.Mutex // guards the field below
	got any
}

func (s *stub) record(v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = v
}

// lastArguments returns the arguments of the last call.
func (s *stub) lastArguments() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

func (s *stub) sandbox(spec brig.Spec) *brig.Sandbox {
	return &brig.Sandbox{
		ID: "sb1", Tenant: "acme", Spec: spec, State: brig.Running, Provider: "stub", Route: brig.Route{Provider: "stub", Reason: "fallback: a is unavailable", Attempts: []brig.Attempt{{Provider: "a", Code: "SB009", Message: "gone", Took: time.Millisecond}}}, Digest: "sha256:aa",
		Created: epoch, Expires: epoch.Add(time.Minute), Notes: []string{"cpu: not enforced"},
	}
}

func (s *stub) find(ctx context.Context, name string) (*brig.Sandbox, error) {
	if brig.ActorFrom(ctx).Tenant != "acme" {
		return nil, errors.New("no actor")
	}
	if name != "box" && name != "sb1" {
		return nil, brig.Errorf(brig.NotFound, "no sandbox %q", name).WithHint("brig sandbox ls")
	}
	return s.sandbox(brig.Spec{Name: "box", Image: "host", TTL: time.Minute, Command: &brig.Command{Argv: []string{"sleep", "9"}, User: "root"}}), nil
}

func (s *stub) Create(_ context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	s.record(spec)
	switch spec.Name {
	case "taken":
		return nil, brig.Errorf(brig.AlreadyExists, "the name is taken").WithHint("pick another")
	case "broken":
		return nil, errors.New("secret database password")
	case "busy":
		return nil, brig.Errorf(brig.RateLimited, "too many sandboxes")
	case "panic":
		panic("boom")
	}
	if _, err := brig.DefaultLimitRange().Fill(spec.Limits); err != nil {
		return nil, err
	}
	if spec.TTL > time.Hour {
		return nil, brig.InvalidField("ttl", "is out of bounds")
	}
	if spec.Name == "" {
		spec.Name = "box"
	}
	return s.sandbox(spec), nil
}

func (s *stub) Get(ctx context.Context, name string) (*brig.Sandbox, error) { return s.find(ctx, name) }

func (s *stub) List(ctx context.Context, o brig.ListOptions) (*brig.Page, error) {
	s.record(o)
	box, err := s.find(ctx, "box")
	return &brig.Page{Sandboxes: []*brig.Sandbox{box}, Next: "more"}, err
}

func (s *stub) result() *brig.Result {
	return &brig.Result{ExecID: "x1", Started: epoch, Duration: 12 * time.Millisecond, Done: true}
}

func write(w io.Writer, o *brig.Output, p []byte) error {
	if w == nil {
		o.Head, o.Total = append(o.Head, p...), o.Total+int64(len(p))
		return nil
	}
	_, err := w.Write(p)
	return err
}

func (s *stub) Exec(ctx context.Context, name string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	if _, err := s.find(ctx, name); err != nil {
		return nil, err
	}
	s.record(cmd)
	if len(cmd.Argv) == 0 {
		return nil, brig.InvalidField("argv", "is empty")
	}
	if sio.Started != nil {
		sio.Started("x1")
	}
	res := s.result()
	var err error
	switch cmd.Argv[0] {
	case "echo":
		err = write(sio.Stdout, &res.Stdout, []byte(strings.Join(cmd.Argv[1:], " ")+"\n"))
		err = errors.Join(err, write(sio.Stderr, &res.Stderr, []byte("warn\n")))
	case "split": // characters that are split across writes, and bytes that are not valid UTF-8
		for _, b := range []string{"caf\xc3", "\xa9 \xe2\x82", "\xac", "\xff\xfe", "ok\xc3"} {
			err = errors.Join(err, write(sio.Stdout, &res.Stdout, []byte(b)))
		}
	case "cut":
		res.Stdout = brig.Output{Head: []byte("head"), Tail: []byte("tail"), Total: 1000}
		res.Stderr = brig.Output{Head: []byte("h\xff"), Tail: []byte("t"), Total: 1000}
	case "cat":
		var data []byte
		data, err = io.ReadAll(orEmpty(sio.Stdin))
		err = errors.Join(err, write(sio.Stdout, &res.Stdout, data))
	case "parrot": // answers each read immediately
		buf := make([]byte, 1024)
		for n, rerr := 0, error(nil); rerr == nil; {
			n, rerr = orEmpty(sio.Stdin).Read(buf)
			err = errors.Join(err, write(sio.Stdout, &res.Stdout, buf[:n]))
		}
	case "three":
		err = write(sio.Result, new(brig.Output), []byte(`{"a":1}`))
	case "flood":
		for err == nil {
			err = write(sio.Stdout, &res.Stdout, bytes.Repeat([]byte("x"), 64<<10))
		}
		s.ended <- err
	case "wait":
		<-ctx.Done()
		s.ended <- ctx.Err()
		return nil, ctx.Err()
	case "late":
		err = write(sio.Stdout, &res.Stdout, []byte("so far\n"))
		if err == nil {
			err = brig.Errorf(brig.FailedPrecondition, "the sandbox died")
		}
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

func orEmpty(r io.Reader) io.Reader {
	if r == nil {
		return strings.NewReader("")
	}
	return r
}

func (s *stub) GetExec(ctx context.Context, name, id string) (*brig.Execution, error) {
	if _, err := s.find(ctx, name); err != nil {
		return nil, err
	}
	if id != "x1" {
		return nil, brig.Errorf(brig.NotFound, "no such execution")
	}
	return &brig.Execution{Sandbox: "sb1", Command: brig.Command{Argv: []string{"true"}, User: "user"}, Result: *s.result()}, nil
}

func (s *stub) Usage(ctx context.Context, name string) (*brig.Usage, error) {
	if _, err := s.find(ctx, name); err != nil {
		return nil, err
	}
	return &brig.Usage{At: epoch, CPU: 1500 * time.Microsecond, Memory: 64 * brig.MiB, Cache: brig.MiB, Disk: 4096, Sent: 10, Received: 20}, nil
}

func (s *stub) ListExecs(ctx context.Context, name string) ([]*brig.Execution, error) {
	x, err := s.GetExec(ctx, name, "x1")
	return []*brig.Execution{x}, err
}

func (s *stub) Logs(ctx context.Context, name string, o brig.LogOptions) (io.ReadCloser, error) {
	if _, err := s.find(ctx, name); err != nil {
		return nil, err
	}
	s.record(o)
	return io.NopCloser(strings.NewReader("one\ntwo\n")), nil
}

func (s *stub) newContext(spec brig.ContextSpec) *brig.CodeContext {
	return &brig.CodeContext{
		ID: "cx1", Sandbox: "sb1", Spec: spec, State: brig.ContextIdle, Flavor: "cpython", Version: "3.13", Count: 2, Created: epoch,
	}
}

func (s *stub) CreateContext(ctx context.Context, name string, spec brig.ContextSpec) (*brig.CodeContext, error) {
	s.record(spec)
	_, err := s.find(ctx, name)
	return s.newContext(spec), err
}

func (s *stub) Contexts(ctx context.Context, name string) ([]*brig.CodeContext, error) {
	_, err := s.find(ctx, name)
	return []*brig.CodeContext{s.newContext(brig.ContextSpec{Language: brig.Python, Dir: "/workspace"})}, err
}

func (s *stub) InterruptContext(ctx context.Context, name, id string) error {
	s.record(id)
	_, err := s.find(ctx, name)
	return err
}

func (s *stub) RestartContext(ctx context.Context, name, id string) (*brig.CodeContext, error) {
	s.record(id)
	_, err := s.find(ctx, name)
	return s.newContext(brig.ContextSpec{Language: brig.Python, Dir: "/workspace"}), err
}

func (s *stub) RemoveContext(ctx context.Context, name, id string) error {
	s.record(id)
	_, err := s.find(ctx, name)
	return err
}

// RunCode returns a fixed result, with values in the format in which code displays them.
func (s *stub) RunCode(ctx context.Context, name string, code brig.Code, on func(brig.CodeEvent) error) (*brig.CodeResult, error) {
	s.record(code)
	if _, err := s.find(ctx, name); err != nil {
		return nil, err
	}
	figure := brig.Rich{Data: map[string]json.RawMessage{"image/png": []byte(`"aGk="`)}}
	value := brig.Rich{Data: map[string]json.RawMessage{"text/plain": []byte(`"42"`)}, Main: true}
	failure := &brig.CodeError{Name: "ValueError", Value: "no", Traceback: "ValueError: no"}
	res := &brig.CodeResult{
		Context: "cx1", Count: 3, Stdout: brig.Output{Head: []byte("hi\n"), Total: 3}, Stderr: brig.Output{Head: []byte("ow"), Total: 2},
		Outputs: []brig.Rich{figure, value}, Error: failure, Started: epoch, Duration: 1500 * time.Microsecond, Queued: time.Millisecond,
	}
	if on == nil {
		return res, nil
	}
	for _, e := range []brig.CodeEvent{
		{Started: res}, {Stdout: []byte("hi\n")}, {Stderr: []byte("ow")}, {Output: &figure}, {Output: &value}, {Error: failure},
	} {
		if err := on(e); err != nil {
			return nil, err
		}
	}
	return res, nil
}

func (s *stub) Templates(context.Context) ([]brig.Template, error) {
	return []brig.Template{
		{Name: "base", Image: "base", StandIn: brig.HostImage, Packages: []string{"git"}},
		{
			Name: "web", Image: "python:3.11-slim", Limits: brig.Limits{Memory: brig.GiB}, TTL: time.Hour, User: "root", Dir: "/srv",
			Start: &brig.Command{Shell: "python3 -m http.server"}, Ready: &brig.Command{Argv: []string{"curl", "-s", "localhost:8000"}},
			ReadyTimeout: time.Minute, ReadyInterval: time.Second,
		},
	}, nil
}

func (s *stub) Pool(context.Context) ([]brig.PoolClass, error) {
	return []brig.PoolClass{{
		Provider: "gvisor", Image: "sha256:aa", Language: brig.Python, Limits: brig.DefaultLimitRange().Default,
		Target: 4, Ready: 3, Making: 1, Hits: 7, Misses: 2, Refill: 150 * time.Millisecond,
	}}, nil
}

func (s *stub) SetEgress(ctx context.Context, name string, rules brig.Egress) (*brig.Sandbox, error) {
	s.record(rules)
	rules.Bandwidth = max(rules.Bandwidth, 0) // if it was SameBandwidth
	if err := rules.Check(); err != nil {
		return nil, err
	}
	box, err := s.find(ctx, name)
	if err == nil {
		box.Spec.Egress = rules
	}
	return box, err
}

func (s *stub) Extend(ctx context.Context, name string, ttl time.Duration) (*brig.Sandbox, error) {
	s.record(ttl)
	return s.find(ctx, name)
}

func (s *stub) Pause(ctx context.Context, name string, o brig.PauseOptions) (*brig.Sandbox, error) {
	box, err := s.find(ctx, name)
	if err == nil {
		box.State, box.Pause = brig.Paused, &brig.Pause{At: epoch, Bytes: 6 << 20, Left: 90 * time.Second, FilesOnly: o.FilesOnly}
	}
	return box, err
}

func (s *stub) Resume(ctx context.Context, name string) (*brig.Sandbox, error) {
	return s.find(ctx, name)
}

func (s *stub) Fork(ctx context.Context, name string, o brig.ForkSpec) ([]*brig.Sandbox, error) {
	s.record(o)
	box, err := s.find(ctx, name)
	if err != nil {
		return nil, err
	}
	copied := *box
	copied.ID, copied.Origin, copied.Spec.Name, copied.Spec.Labels = "sb2", box.ID, "box-2", o.Labels
	return []*brig.Sandbox{&copied}, nil
}

func (s *stub) Stop(ctx context.Context, name string, grace time.Duration) (*brig.Sandbox, error) {
	s.record(grace)
	box, err := s.find(ctx, name)
	if err == nil {
		box.State, box.Ended = brig.Ended, epoch
		box.Exit = &brig.Exit{Code: 143, Reason: brig.Stopped, At: epoch}
	}
	return box, err
}

func (s *stub) Kill(ctx context.Context, name string) (*brig.Sandbox, error) {
	return s.Stop(ctx, name, 0)
}

func (s *stub) Remove(ctx context.Context, name string) error {
	_, err := s.find(ctx, name)
	return err
}

func (s *stub) Run(ctx context.Context, p brig.Program, sio brig.IO) (*brig.Outcome, error) {
	s.record(p)
	if p.Language == "" && p.Command == nil {
		return nil, brig.InvalidField("language", "is missing").WithHint("say what the code is written in")
	}
	if p.Code == "wait" {
		<-ctx.Done()
		s.ended <- ctx.Err()
		return nil, ctx.Err()
	}
	o := &brig.Outcome{Result: *s.result(), Sandbox: "py-1", Value: json.RawMessage(`{"n":[1,2.50]}`)}
	if sio.Stdout != nil {
		if err := write(sio.Stdout, nil, []byte("hello\n")); err != nil {
			return nil, err
		}
	}
	o.Stdout = brig.Output{Head: []byte("hello\n"), Total: 6}
	o.Artifacts = []brig.File{{Path: "a.csv", Data: []byte("1,2\n"), Mode: 0o644}}
	if p.Code == "raise" {
		o.ExitCode, o.Value = 1, nil
		o.Error = &brig.ProgramError{Name: "ValueError", Message: "bad", Traceback: "Traceback…"}
	}
	return o, nil
}

func (s *stub) Runs(ctx context.Context, o brig.RunOptions) (*brig.RunPage, error) {
	s.record(o)
	run, err := s.GetRun(ctx, "py-1")
	if err != nil {
		return nil, err
	}
	return &brig.RunPage{Runs: []*brig.RunSummary{run.Summary()}, Next: "next"}, nil
}

func (s *stub) GetRun(ctx context.Context, name string) (*brig.Outcome, error) {
	if name != "py-1" {
		return nil, brig.Errorf(brig.NotFound, "no run %q", name)
	}
	return s.Run(ctx, brig.Program{Command: []string{"true"}}, brig.IO{})
}

func (s *stub) image() *brig.Image {
	return &brig.Image{Digest: "sha256:aa", Names: []string{"box"}, Size: 5, Files: 2, Created: epoch, Source: "tarball"}
}

func (s *stub) Images(context.Context) ([]*brig.Image, error) { return []*brig.Image{s.image()}, nil }

func (s *stub) GetImage(_ context.Context, ref string) (*brig.Image, error) {
	if s.record(ref); ref == "none" {
		return nil, brig.Errorf(brig.NotFound, "no image")
	}
	return s.image(), nil
}

func (s *stub) ImportImage(_ context.Context, name string, r io.Reader, report func(brig.Progress)) (*brig.Image, error) {
	if !brig.ValidName(name) {
		return nil, brig.InvalidField("name", "is not a name")
	}
	n, err := io.Copy(io.Discard, io.LimitReader(r, 5))
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	report(brig.Progress{Step: "unpack", Done: n})
	m, err := io.Copy(io.Discard, r)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	s.record(n + m)
	return s.image(), nil
}

func (s *stub) BuildImage(_ context.Context, b brig.ImageBuild, report func(brig.Progress)) (*brig.Image, error) {
	s.record(b)
	report(brig.Progress{Step: "fetch", Done: 1, Total: 2})
	return s.image(), nil
}

func (s *stub) PullImage(_ context.Context, p brig.ImagePull, report func(brig.Progress)) (*brig.Image, error) {
	s.record(p)
	report(brig.Progress{Step: "fetch layer 1 of 2", Done: 1, Total: 2})
	return s.image(), nil
}

func (s *stub) TagImage(_ context.Context, ref, name string) (*brig.Image, error) {
	s.record(ref + " " + name)
	i := s.image()
	i.Alias = name
	return i, nil
}

func (s *stub) RemoveImage(_ context.Context, ref string) error {
	s.record(ref)
	if ref == "used" {
		return brig.Errorf(brig.FailedPrecondition, "a sandbox uses it")
	}
	return nil
}

var _ brig.Service = (*stub)(nil)

// serve starts the API over a stub.
func serve(t testing.TB) (*stub, *httptest.Server) {
	t.Helper()
	s := &stub{ended: make(chan error, 8)}
	srv := httptest.NewServer(rest.New(rest.Options{Service: s, Builds: stubTemplates{s}, Keys: keys{}, Version: "v0", LimitRange: brig.DefaultLimitRange()}))
	t.Cleanup(srv.Close)
	return s, srv
}

// doRequest sends a request with the key and returns the response and its body.
func doRequest(t testing.TB, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if req.Header.Del(headers[i]); headers[i] == "Host" {
			req.Host = headers[i+1]
		} else if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	return transcript.Fetch(t, req)
}
