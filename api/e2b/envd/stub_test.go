package envd_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b/envd"
)

const token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// stub is a scripted brig.Service with one sandbox, named "box".
type stub struct {
	brig.Service // calls of methods that are not scripted panic

	mu      sync.Mutex // guards the fields below
	state   brig.State
	spec    brig.ProcessSpec
	list    []*brig.ProcessInfo
	calls   []string
	files   map[string]string
	err     error // error of the next call, if set
	changes chan brig.FileChange
	// watchFails ends a watch with an error.
	watchFails chan error
	ended      chan struct{}
	attach     func(ctx context.Context, from int64, on func(brig.ProcessEvent) error) error
}

func newStub() *stub {
	return &stub{state: brig.Running, files: map[string]string{}, changes: make(chan brig.FileChange), watchFails: make(chan error), ended: make(chan struct{})}
}

// endSandbox ends the sandbox.
func (s *stub) endSandbox() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = brig.Ended
	close(s.ended)
}

func (s *stub) record(call string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
	err := s.err
	s.err = nil
	if err == nil && s.state != brig.Running {
		err = brig.Errorf(brig.FailedPrecondition, "sandbox %q is not running", "box")
	}
	return err
}

func (s *stub) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *stub) lastCall() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) == 0 {
		return ""
	}
	return s.calls[len(s.calls)-1]
}

func (s *stub) Get(context.Context, string) (*brig.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &brig.Sandbox{ID: "box", State: s.state}, nil
}

func (s *stub) Files(string) brig.Files         { return stubFiles{s: s} }
func (s *stub) Processes(string) brig.Processes { return stubProcesses{s: s} }

type stubProcesses struct {
	brig.Processes
	s *stub
}

func (p stubProcesses) Start(_ context.Context, spec brig.ProcessSpec) (*brig.ProcessInfo, error) {
	if err := p.s.record("start"); err != nil {
		return nil, err
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.spec = spec
	info := &brig.ProcessInfo{PID: 42, Spec: spec}
	p.s.list = append(p.s.list, info)
	return info, nil
}

func (p stubProcesses) List(context.Context) ([]*brig.ProcessInfo, error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return append([]*brig.ProcessInfo(nil), p.s.list...), nil
}

func (p stubProcesses) Attach(ctx context.Context, _ int, from int64, on func(brig.ProcessEvent) error) error {
	return p.s.attach(ctx, from, on)
}

func (p stubProcesses) WriteInput(_ context.Context, _ int, b []byte) error {
	return p.s.record("input " + string(b))
}
func (p stubProcesses) CloseInput(context.Context, int) error { return p.s.record("close") }
func (p stubProcesses) Signal(_ context.Context, _ int, name string) error {
	return p.s.record("signal " + name)
}
func (p stubProcesses) Resize(_ context.Context, _ int, size brig.Terminal) error {
	return p.s.record("resize " + string(rune('0'+size.Rows/10)))
}

// stubFiles holds files in a map. A directory is an entry whose name ends in
// "/".
type stubFiles struct {
	brig.Files
	s *stub
}

func (f stubFiles) entry(p string) (*brig.Entry, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	e := &brig.Entry{Name: path.Base(p), Path: p, Mode: 0o644, Owner: "user", Group: "user", Modified: epoch}
	if _, ok := f.s.files[p+"/"]; ok {
		e.Type, e.Mode = brig.Directory, 0o755
		return e, nil
	}
	content, ok := f.s.files[p]
	if !ok {
		return nil, brig.Errorf(brig.NotFound, "nothing is at %s", p)
	}
	e.Type, e.Size = brig.RegularFile, int64(len(content))
	return e, nil
}

func (f stubFiles) Stat(_ context.Context, p brig.Path) (*brig.Entry, error) {
	if err := f.s.record("stat " + p.User + " " + p.Name); err != nil {
		return nil, err
	}
	return f.entry(p.Name)
}

func (f stubFiles) List(_ context.Context, p brig.Path, depth int) ([]*brig.Entry, error) {
	if err := f.s.record("list " + p.Name + string(rune('0'+depth))); err != nil {
		return nil, err
	}
	link := &brig.Entry{Name: "l", Path: p.Name + "/l", Type: brig.Symlink, Mode: 0o777, Target: "/etc", TargetType: brig.Directory, TargetMode: 0o755, Size: 4}
	return []*brig.Entry{link}, nil
}

func (f stubFiles) MakeDir(_ context.Context, p brig.Path) (*brig.Entry, error) {
	if err := f.s.record("mkdir " + p.Name); err != nil {
		return nil, err
	}
	if _, err := f.entry(p.Name); err == nil {
		return nil, brig.Errorf(brig.AlreadyExists, "it is there")
	}
	f.s.mu.Lock()
	f.s.files[p.Name+"/"] = ""
	f.s.mu.Unlock()
	return f.entry(p.Name)
}

func (f stubFiles) Move(_ context.Context, from, to brig.Path) (*brig.Entry, error) {
	if err := f.s.record("move " + from.Name + " " + to.Name); err != nil {
		return nil, err
	}
	return f.entry(from.Name)
}

func (f stubFiles) Remove(_ context.Context, p brig.Path) error {
	return f.s.record("remove " + p.Name)
}

func (f stubFiles) Read(_ context.Context, p brig.Path, from, _ int64) (*brig.Entry, io.ReadCloser, error) {
	if err := f.s.record("read " + p.Name); err != nil {
		return nil, nil, err
	}
	e, err := f.entry(p.Name)
	if err != nil {
		return nil, nil, err
	}
	if e.Type == brig.Directory {
		return nil, nil, brig.InvalidField("path", "path '%s' is a directory", p.Name)
	}
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if path.Dir(p.Name) == "/proc" {
		e.Size = 0
	}
	if path.Base(p.Name) == "cut" {
		e.Size += 1 << 20 // larger than the file
	}
	return e, io.NopCloser(bytes.NewReader([]byte(f.s.files[p.Name])[from:])), nil
}

func (f stubFiles) Write(_ context.Context, p brig.Path, w brig.FileWrite, r io.Reader) (*brig.Entry, error) {
	data, rerr := io.ReadAll(r)
	if err := f.s.record("write " + p.User + " " + p.Name); err != nil {
		return nil, err
	}
	if rerr != nil {
		return nil, rerr
	}
	f.s.mu.Lock()
	f.s.files[p.Name] = string(data)
	f.s.mu.Unlock()
	e, err := f.entry(p.Name)
	if err == nil {
		e.Metadata = w.Metadata
	}
	return e, err
}

func (f stubFiles) Compose(_ context.Context, from []brig.Path, to brig.Path) (*brig.Entry, error) {
	if err := f.s.record("compose"); err != nil {
		return nil, err
	}
	f.s.mu.Lock()
	for _, p := range from {
		f.s.files[to.Name] += f.s.files[p.Name]
		delete(f.s.files, p.Name)
	}
	f.s.mu.Unlock()
	return f.entry(to.Name)
}

func (f stubFiles) Watch(ctx context.Context, p brig.Path, _ bool, on func(brig.FileChange) error) error {
	if err := f.s.record("watch " + p.Name); err != nil {
		return err
	}
	if err := on(brig.FileChange{}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.s.ended:
			return brig.Errorf(brig.FailedPrecondition, "the sandbox is not running")
		case err := <-f.s.watchFails:
			return err
		case c := <-f.s.changes:
			if err := on(c); err != nil {
				return err
			}
		}
	}
}

// serve serves a stub over a TCP connection, with HTTP/1.1 and h2c.
func serve(t *testing.T, s *stub) *httptest.Server {
	t.Helper()
	e := envd.New(envd.Options{Service: s})
	box := envd.Sandbox{ID: "box", Token: token, Env: map[string]string{"A": "1"}}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.Serve(w, r.WithContext(brig.WithActor(r.Context(), brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Member})), box)
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	t.Cleanup(e.Close)
	return srv
}
