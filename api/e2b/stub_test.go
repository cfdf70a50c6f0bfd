package e2b_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
)

// key is the key of these tests, and otherKey is a key of another tenant.
const (
	key      = "e2b_0123456789abcdef0123456789abcdef01234567"
	otherKey = "e2b_ffffffffffffffffffffffffffffffffffffffff"
)

// epoch is the start time of sandboxes. It is far in the future, so that
// connect never changes their end.
var epoch = time.Date(2126, 1, 2, 3, 4, 5, 0, time.UTC)

type keys struct{}

func (keys) KeyActor(_ context.Context, hash [32]byte) (brig.Actor, error) {
	switch hash {
	case sha256.Sum256([]byte(key)):
		return brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Admin}, nil
	case sha256.Sum256([]byte(otherKey)):
		return brig.Actor{Name: "bob", Tenant: "poor", Role: brig.Admin}, nil
	}
	return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "no such key")
}

// stub is a scripted brig.Service that holds sandboxes in memory.
type stub struct {
	log          func() io.Reader // replaces the lines of the log
	brig.Service                  // calls of methods that are not scripted panic

	mu       sync.Mutex // guards the fields below
	boxes    []*brig.Sandbox
	contexts map[string][]*brig.CodeContext
	ports    map[int]string // addresses of the servers by port
	dials    int
	calls    []string
	specs    []brig.Spec
	codes    []brig.Code
	begin    time.Time
	slow     time.Duration
	ended    chan error    // receives the cause that ended waiting code
	proceed  chan struct{} // received from by code that waits
}

func newStub() *stub {
	return &stub{contexts: map[string][]*brig.CodeContext{}, ports: map[int]string{}, begin: epoch, ended: make(chan error, 8), proceed: make(chan struct{})}
}

func (s *stub) record(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *stub) recordedCalls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *stub) lastSpec() brig.Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.specs[len(s.specs)-1]
}

func (s *stub) add(tenant string, spec brig.Spec) *brig.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.boxes)
	spec.Limits = brig.DefaultLimitRange().Default
	spec.Name = "box" + strconv.Itoa(n+1)
	at := s.begin.Add(time.Duration(n) * time.Second)
	b := &brig.Sandbox{
		ID: brig.ID("sb" + strconv.Itoa(n+1)), Tenant: tenant, Spec: spec, State: brig.Running,
		Created: at, Expires: at.Add(spec.TTL),
	}
	s.boxes = append(s.boxes, b)
	return b
}

func (s *stub) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		if string(b.ID) == id {
			b.State = brig.Ended
		}
	}
}

func (s *stub) Create(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	s.mu.Lock()
	s.specs = append(s.specs, spec)
	s.mu.Unlock()
	switch spec.Labels["script"] {
	case "busy":
		return nil, brig.Errorf(brig.RateLimited, "too many sandboxes")
	case "away":
		return nil, brig.Errorf(brig.Unavailable, "the machine is going down")
	case "broken":
		return nil, errors.New("secret database password")
	case "panic":
		panic("boom")
	case "label":
		return nil, brig.InvalidField("labels", "%q cannot be a label", "x").WithHint("be brief")
	}
	return s.add(brig.ActorFrom(ctx).Tenant, spec), nil
}

func (s *stub) Get(ctx context.Context, name string) (*brig.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		if (string(b.ID) == name || b.Spec.Name == name) && b.Tenant == brig.ActorFrom(ctx).Tenant {
			c := *b
			return &c, nil
		}
	}
	return nil, brig.Errorf(brig.NotFound, "no sandbox %q", name)
}

func (s *stub) owner(_ context.Context, id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		if string(b.ID) == id {
			return b.Tenant, nil
		}
	}
	return "", brig.Errorf(brig.NotFound, "no sandbox %q", id)
}

func (s *stub) List(ctx context.Context, o brig.ListOptions) (*brig.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*brig.Sandbox
	for _, b := range slices.Backward(s.boxes) {
		fits := b.Tenant == brig.ActorFrom(ctx).Tenant && (len(o.States) == 0 || slices.Contains(o.States, b.State))
		for k, v := range o.Labels {
			fits = fits && b.Spec.Labels[k] == v
		}
		if fits {
			all = append(all, b)
		}
	}
	from, _ := strconv.Atoi(o.Cursor)
	end := min(from+7, len(all)) // the stub's own page size
	page := &brig.Page{Sandboxes: all[from:end]}
	if end < len(all) {
		page.Next = strconv.Itoa(end)
	}
	return page, nil
}

func (s *stub) SetEgress(ctx context.Context, name string, rules brig.Egress) (*brig.Sandbox, error) {
	box, err := s.Get(ctx, name)
	if err == nil {
		box.Spec.Egress = rules
	}
	return box, err
}

func (s *stub) Extend(ctx context.Context, name string, ttl time.Duration) (*brig.Sandbox, error) {
	s.record("extend %s %v", name, ttl)
	return s.Get(ctx, name)
}

func (s *stub) Pause(ctx context.Context, name string, o brig.PauseOptions) (*brig.Sandbox, error) {
	b, err := s.Get(ctx, name)
	if err == nil && b.Spec.Labels["script"] == "in-use" {
		err = brig.Errorf(brig.FailedPrecondition, "sandbox %q is in use", name).WithHint("wait")
	}
	if err != nil {
		return nil, err
	}
	return s.change(name, func(b *brig.Sandbox) {
		b.State, b.Pause = brig.Paused, &brig.Pause{At: s.begin, FilesOnly: o.FilesOnly}
	})
}

func (s *stub) Resume(ctx context.Context, name string) (*brig.Sandbox, error) {
	if _, err := s.Get(ctx, name); err != nil {
		return nil, err
	}
	s.record("resume %s", name)
	return s.change(name, func(b *brig.Sandbox) { b.State, b.Pause = brig.Running, nil })
}

func (s *stub) Fork(ctx context.Context, name string, o brig.ForkSpec) (out []*brig.Sandbox, err error) {
	b, err := s.Get(ctx, name)
	if err == nil && b.Spec.Labels["script"] == "in-use" {
		err = brig.Errorf(brig.FailedPrecondition, "sandbox %q is in use", name).WithHint("wait")
	}
	if err != nil {
		return nil, err
	}
	spec := b.Spec
	if o.Labels != nil {
		spec.Labels = o.Labels
	}
	if o.TTL != 0 {
		spec.TTL = o.TTL
	}
	if len(o.Env) > 0 {
		spec.Env = o.Env
	}
	if o.Egress != nil {
		spec.Egress = *o.Egress
	}
	if o.AtEnd != nil {
		spec.PauseAtEnd, spec.PauseFilesOnly = o.AtEnd.Pause, o.AtEnd.FilesOnly
	}
	n := max(o.Count, 1)
	if o.Partial && b.Spec.Labels["script"] == "limited" {
		n = min(n, 2)
	}
	for range n {
		c := s.add(b.Tenant, spec)
		if o.Paused {
			c.State, c.Pause = brig.Paused, &brig.Pause{At: s.begin}
		}
		out = append(out, c)
	}
	return out, nil
}

// change changes the sandbox with an id.
func (s *stub) change(id string, f func(*brig.Sandbox)) (*brig.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		if string(b.ID) == id {
			f(b)
			c := *b
			return &c, nil
		}
	}
	return nil, brig.Errorf(brig.NotFound, "no sandbox %q", id)
}

func (s *stub) Remove(ctx context.Context, name string) error {
	b, err := s.Get(ctx, name)
	if err == nil {
		s.end(string(b.ID))
		s.record("remove %s", name)
	}
	return err
}

func (s *stub) Logs(context.Context, string, brig.LogOptions) (io.ReadCloser, error) {
	if s.log != nil {
		return io.NopCloser(s.log()), nil
	}
	// Two lines have the same time, and one line is older than its sandbox.
	return io.NopCloser(strings.NewReader("2126-01-02T03:04:05.000Z one\n2126-01-02T03:04:05.000Z two \"2\"\n2026-01-02T03:04:05.000Z three\n")), nil
}

func (s *stub) GetImage(_ context.Context, ref string) (*brig.Image, error) {
	if ref != brig.HostImage && ref != "data" {
		return nil, brig.Errorf(brig.NotFound, "no image %q", ref)
	}
	return &brig.Image{Digest: "sha256:aa", Names: []string{ref}, Created: epoch}, nil
}

func (s *stub) Dial(ctx context.Context, name string, port int) (net.Conn, error) {
	if _, err := s.Get(ctx, name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	addr := s.ports[port]
	s.dials++
	s.mu.Unlock()
	if addr == "" {
		return nil, brig.Errorf(brig.ConnectionFailed, "no program listens on port %d", port)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

func (s *stub) listen(port int, addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports[port] = addr
}

func (s *stub) dialCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials
}

func (s *stub) CreateContext(ctx context.Context, name string, spec brig.ContextSpec) (*brig.CodeContext, error) {
	if _, err := s.Get(ctx, name); err != nil {
		return nil, err
	}
	if spec.Language == "cobol" {
		time.Sleep(s.slow)
		return nil, brig.InvalidField("language", "image %q has no %s", "host", spec.Language)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &brig.CodeContext{ID: "cx" + strconv.Itoa(len(s.contexts[name])+1), Sandbox: brig.ID(name), Spec: spec}
	s.contexts[name] = append(s.contexts[name], c)
	return c, nil
}

func (s *stub) Contexts(_ context.Context, name string) ([]*brig.CodeContext, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.contexts[name]), nil
}

func (s *stub) context(name, id string) (*brig.CodeContext, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.contexts[name] {
		if c.ID == id {
			return c, nil
		}
	}
	return nil, brig.Errorf(brig.NotFound, "no context %q", id)
}

func (s *stub) RestartContext(_ context.Context, name, id string) (*brig.CodeContext, error) {
	s.record("restart %s %s", name, id)
	return s.context(name, id)
}

func (s *stub) RemoveContext(_ context.Context, name, id string) error {
	if _, err := s.context(name, id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contexts[name] = slices.DeleteFunc(s.contexts[name], func(c *brig.CodeContext) bool { return c.ID == id })
	return nil
}

// envd responds with the values that the data plane receives.
func envd(w http.ResponseWriter, r *http.Request, s e2b.SandboxAccess) {
	a := brig.ActorFrom(r.Context())
	if r.URL.Path == "/health" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if r.URL.Path == "/abort" {
		fmt.Fprint(w, "so far")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	if a.Tenant == "" {
		http.Error(w, "no token", http.StatusUnauthorized)
		return
	}
	fmt.Fprintf(w, "envd %s %s for %s %d in %s\n", r.Method, r.URL.RequestURI(), a.Tenant, a.Role, s.ID)
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		fmt.Fprintf(w, "%s=%s\n", k, s.Env[k])
	}
}

// serve starts the API over a stub.
func serve(t testing.TB, change ...func(*e2b.Options)) (*stub, *e2b.API, *httptest.Server) {
	t.Helper()
	s := newStub()
	o := e2b.Options{
		Service: s, Keys: keys{}, Owner: s.owner, Seed: []byte("seed"), Domain: "box.test:8443", Envd: envd,
		Templates: []brig.Template{{Name: "base", Image: "host"}, {Name: "code-interpreter-v1", Image: "none", StandIn: "host"}, {Name: "gone", Image: "nowhere"}},
	}
	for _, f := range change {
		f(&o)
	}
	d := e2b.New(o)
	d.SetFlushDelay(time.Hour) // long enough for related output to be combined on a slow computer
	srv := httptest.NewServer(d)
	t.Cleanup(srv.Close)
	return s, d, srv
}

// doRequest sends a request with the key and returns the response and its body.
func doRequest(t testing.TB, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		switch name, value := headers[i], headers[i+1]; {
		case name == "Host":
			req.Host = value
		case value == "":
			req.Header[http.CanonicalHeaderKey(name)] = nil
		default:
			req.Header.Set(name, value)
		}
	}
	return send(t, req)
}
