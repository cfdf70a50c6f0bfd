package kernels_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi/transcript"
	"github.com/brig-run/brig/api/kernels"
)

var _ = flag.Bool("update", false, "rewrite the transcripts in testdata")

// Two tenants own these keys.
var (
	key   = "brig_" + strings.Repeat("a", 52)
	rival = "brig_" + strings.Repeat("b", 52)
)

// scriptedService is a Service that interprets the first line of the code as a
// command.
type scriptedService struct {
	kernels.Service

	mu         sync.Mutex // guards the fields below
	boxes      map[string]*brig.Sandbox
	count      map[string]int // number of runs by the sandbox's name
	steps      []*brig.Step
	authorized []string  // operations on ephemeral kernels
	failure    error     // error of Contexts
	unused     bool      // no kernel has an interpreter
	created    time.Time // creation time of the tenants
	ended      int       // number of interrupted runs
	gone       map[string]chan struct{}
}

// lesser maps keys to actors of the tenant acme that have fewer rights than a member.
var lesser = map[string]brig.Actor{
	"brig_" + strings.Repeat("c", 52): {Name: "viewer", Tenant: "acme", Role: brig.Viewer},
	"brig_" + strings.Repeat("d", 52): {Name: "another scope", Tenant: "acme", Role: brig.Admin, Scopes: []string{"sandbox.", "context."}},
	"brig_" + strings.Repeat("e", 52): {Name: "grant", Tenant: "acme", Role: brig.Member, Sandboxes: []string{"one"}},
}

// Authorize implements kernels.Service. It applies the same rules as the
// engine's gate.
func (s *scriptedService) Authorize(ctx context.Context, op brig.Op, name string, do func(brig.Tenant) error) error {
	a := brig.ActorFrom(ctx)
	if a.Role < op.Role || !brig.InScope(a.Scopes, op.Name) || len(a.Sandboxes) > 0 {
		return brig.Errorf(brig.PermissionDenied, "%s may not %s", a.Name, op.Name)
	}
	s.mu.Lock()
	created := s.created
	s.authorized = append(s.authorized, strings.TrimSuffix(op.Name+" "+name, " "))
	s.mu.Unlock()
	return do(brig.Tenant{Name: a.Tenant, Created: created})
}

// KeyActor implements httpapi.Keys.
func (s *scriptedService) KeyActor(_ context.Context, hash [32]byte) (brig.Actor, error) {
	for k, tenant := range map[string]string{key: "acme", rival: "rival"} {
		if hash == hashKey(k) {
			return brig.Actor{Name: "ann", Tenant: tenant, Role: brig.Member}, nil
		}
	}
	for k, a := range lesser {
		if hash == hashKey(k) {
			return a, nil
		}
	}
	return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "nobody has this key")
}

func (s *scriptedService) keyOf(ctx context.Context, name string) string {
	return brig.ActorFrom(ctx).Tenant + "/" + name
}

// Create implements kernels.Service.
func (s *scriptedService) Create(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	if spec.Env["FULL"] != "" {
		return nil, brig.Errorf(brig.RateLimited, "the tenant has no seat left").WithHint("remove a sandbox")
	}
	b := &brig.Sandbox{ID: "sb1", Spec: spec, State: brig.Running, Expires: now().Add(spec.TTL)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boxes[s.keyOf(ctx, spec.Name)], s.gone[spec.Name] = b, make(chan struct{})
	return b, nil
}

// Get implements kernels.Service.
func (s *scriptedService) Get(ctx context.Context, name string) (*brig.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[s.keyOf(ctx, name)]; b != nil {
		return b, nil
	}
	return nil, brig.Errorf(brig.NotFound, "no sandbox %q", name)
}

// List implements kernels.Service.
func (s *scriptedService) List(ctx context.Context, o brig.ListOptions) (*brig.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &brig.Page{}
	for at, b := range s.boxes {
		if strings.HasPrefix(at, s.keyOf(ctx, "")) && b.Spec.Labels["jupyter.kernel"] == o.Labels["jupyter.kernel"] {
			p.Sandboxes = append(p.Sandboxes, b)
		}
	}
	return p, nil
}

// Remove implements kernels.Service.
func (s *scriptedService) Remove(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.boxes[s.keyOf(ctx, name)] == nil {
		return brig.Errorf(brig.NotFound, "no sandbox %q", name)
	}
	delete(s.boxes, s.keyOf(ctx, name))
	close(s.gone[name])
	return nil
}

// Hold implements brig.Holder.
func (s *scriptedService) Hold(_ context.Context, _ brig.Op, name string) (<-chan struct{}, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone[name], func() {}, nil
}

// Contexts implements kernels.Service.
func (s *scriptedService) Contexts(context.Context, string) ([]*brig.CodeContext, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return nil, s.failure
	}
	if s.unused {
		return nil, nil
	}
	return []*brig.CodeContext{{ID: "default-python", Spec: brig.ContextSpec{Language: brig.Python}, State: brig.ContextIdle}}, nil
}

// InterruptContext implements kernels.Service.
func (s *scriptedService) InterruptContext(ctx context.Context, _, _ string) error {
	return brig.ActorFrom(ctx).Authorize(brig.OpInterrupt)
}

// RestartContext implements kernels.Service.
func (s *scriptedService) RestartContext(ctx context.Context, name, _ string) (*brig.CodeContext, error) {
	if err := brig.ActorFrom(ctx).Authorize(brig.OpRestart); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[name] = 0
	return &brig.CodeContext{}, nil
}

func text(s string) brig.Rich {
	b, err := json.Marshal(s)
	if err != nil {
		b = []byte(`""`)
	}
	return brig.Rich{Data: map[string]json.RawMessage{"text/plain": b}}
}

// runScript runs the command in code. The command may write output, display
// values, and return a value or fail.
func (s *scriptedService) runScript(ctx context.Context, code string, write func(name, text string), show func(brig.Rich)) (value string, failure *brig.CodeError, err error) {
	word, rest, _ := strings.Cut(code, "\n")
	switch word {
	case "print":
		write("stdout", rest)
	case "both":
		write("stdout", "out\n")
		write("stderr", "err\n")
		show(brig.Rich{Data: map[string]json.RawMessage{"image/png": json.RawMessage(`"iVBORw0K"`)}})
		value = "'last'"
	case "progress":
		displayed := text("0")
		displayed.DisplayID, displayed.Metadata = "bar", map[string]json.RawMessage{"text/plain": json.RawMessage(`{"width":1}`)}
		show(displayed)
		update := text("1")
		update.DisplayID, update.Update = "bar", true
		show(update)
	case "split":
		write("stdout", "caf\xc3")
		write("stdout", "\xa9 \xff\n")
	case "raise":
		failure = &brig.CodeError{Name: "ValueError", Value: "no", Traceback: "Traceback:\n  line 1\nValueError: no\n"}
	case "answer":
		failure = &brig.CodeError{Name: "FinalAnswerException", Value: `safe:{"__type__": "tuple", "data": [1, 2]}`, Traceback: "FinalAnswerException\n"}
	case "quiet":
		failure = &brig.CodeError{Name: "Mute", Value: "said nothing"}
	case "refuse":
		err = brig.Errorf(brig.PolicyBlocked, "Code is unsafe. Line 1: Import: os").WithHint("leave it out")
	case "wait", "flood":
		write("stdout", "waits\n")
		for word == "flood" && ctx.Err() == nil {
			write("stdout", strings.Repeat("x", 1<<16))
		}
		<-ctx.Done()
		s.mu.Lock()
		s.ended++
		s.mu.Unlock()
		err = context.Cause(ctx)
	default:
		value = code
	}
	return value, failure, err
}

// RunCode implements kernels.Service.
func (s *scriptedService) RunCode(ctx context.Context, name string, c brig.Code, on func(brig.CodeEvent) error) (*brig.CodeResult, error) {
	s.mu.Lock()
	if !c.Uncounted {
		s.count[name]++
	}
	res := &brig.CodeResult{Count: s.count[name]}
	box, ended := s.boxes[s.keyOf(ctx, name)], s.gone[name]
	s.mu.Unlock()
	if box == nil {
		return nil, brig.Errorf(brig.NotFound, "no sandbox %q", name)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := on(brig.CodeEvent{Started: res}); err != nil {
		return nil, err
	}
	value, failure, err := s.runScript(ctx, c.Source, func(name, text string) {
		if name == "stderr" {
			_ = on(brig.CodeEvent{Stderr: []byte(text)})
			return
		}
		_ = on(brig.CodeEvent{Stdout: []byte(text)})
	}, func(v brig.Rich) { _ = on(brig.CodeEvent{Output: &v}) })
	select {
	case <-ended:
		res.SandboxEnded, res.Error = brig.Killed, &brig.CodeError{Name: "SandboxEnded", Value: "sandbox " + name}
		return res, nil
	default:
	}
	if err != nil {
		return nil, err
	}
	if res.Error = failure; value != "" && failure == nil {
		v := text(value)
		v.Main = true
		_ = on(brig.CodeEvent{Output: &v})
	}
	return res, nil
}

// Run implements kernels.Service.
func (s *scriptedService) Run(ctx context.Context, p brig.Program, sio brig.IO) (*brig.Outcome, error) {
	s.mu.Lock()
	s.steps = append(s.steps, p.Step)
	s.mu.Unlock()
	o := &brig.Outcome{Step: &brig.StepOutcome{State: json.RawMessage(fmt.Sprintf(`{"after":%d}`, p.Step.Count+1)), Packages: append(slices.Clone(p.Step.Packages), "p"+p.Code)}}
	value, failure, err := s.runScript(ctx, p.Code, func(name, text string) {
		w := sio.Stdout
		if name == "stderr" {
			w = sio.Stderr
		}
		_, _ = io.WriteString(w, text)
	}, func(v brig.Rich) { o.Step.Outputs = append(o.Step.Outputs, v) })
	if err != nil {
		return nil, err
	}
	if failure != nil {
		o.Error = &brig.ProgramError{Name: failure.Name, Message: failure.Value, Traceback: failure.Traceback}
	} else if value != "" {
		v := text(value)
		v.Main = true
		o.Step.Outputs = append(o.Step.Outputs, v)
	}
	return o, nil
}

func now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// serve starts an API whose ids are consecutive numbers.
func serve(t *testing.T) (string, *scriptedService, *kernels.API) {
	t.Helper()
	s := &scriptedService{boxes: map[string]*brig.Sandbox{}, count: map[string]int{}, gone: map[string]chan struct{}{}}
	var mu sync.Mutex
	n := 0
	d := kernels.New(kernels.Options{Service: s, Keys: s, Now: now, NewID: func() string {
		mu.Lock()
		defer mu.Unlock()
		n++
		return fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	}})
	srv := httptest.NewServer(d)
	t.Cleanup(func() {
		d.Close()
		srv.Close()
	})
	return srv.URL, s, d
}

// The responses of all routes are byte for byte equal to the recorded responses. TOKEN stands
// for the key.
func TestResponsesMatchTranscripts(t *testing.T) {
	transcript.Run(t, transcript.Options{
		Files: "testdata/rest*.txtar",
		Serve: func(t *testing.T) string {
			url, _, _ := serve(t)
			return url
		},
		Do: func(t *testing.T, req *http.Request) (*http.Response, string) {
			t.Helper()
			req.URL.RawQuery = strings.NewReplacer("TOKEN", key, "RIVAL", rival).Replace(req.URL.RawQuery)
			if a := req.Header.Get("Authorization"); a != "" {
				req.Header.Set("Authorization", strings.Replace(a, "TOKEN", key, 1))
			}
			return transcript.Fetch(t, req)
		},
		Headers: []string{"Location", "Retry-After", "Content-Type"},
	})
}

// dial creates a kernel with a spec and connects to it.
func dial(t *testing.T, url, spec string) *websocket.Conn {
	t.Helper()
	resp, err := http.Post(url+"/api/kernels?token="+key, "application/json", strings.NewReader(`{"name":"`+spec+`"}`))
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatal(resp, err)
	}
	var k struct{ ID string }
	if err := json.NewDecoder(resp.Body).Decode(&k); err != nil {
		t.Fatal(err)
	}
	return connect(t, url, k.ID)
}

func connect(t *testing.T, url, id string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(url, "http")+"/api/kernels/"+id+"/channels?token="+key, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	t.Cleanup(func() { conn.CloseNow() })
	return conn
}

// The messages of the channels are byte for byte equal to the recorded messages. For each .req,
// the .resp contains all responses until the kernel is idle again or the connection ends.
// Kernels of both specs send the same messages and share one file.
func TestMessagesMatchRecords(t *testing.T) {
	for _, spec := range []string{kernels.Stateful, kernels.Ephemeral} {
		t.Run(spec, func(t *testing.T) {
			a, err := txtar.ParseFile("testdata/channels.txtar")
			if err != nil {
				t.Fatal(err)
			}
			out := &txtar.Archive{Comment: a.Comment}
			url, _, _ := serve(t)
			for _, f := range a.Files {
				id, ok := strings.CutSuffix(f.Name, ".req")
				if !ok {
					continue
				}
				conn := dial(t, url, spec)
				got := talk(t, conn, f.Data)
				conn.CloseNow()
				out.Files = append(out.Files, f, txtar.File{Name: id + ".resp", Data: []byte(got)})
				i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == id+".resp" })
				if update := flag.Lookup("update").Value.String() == "true"; !update && (i < 0 || got != string(a.Files[i].Data)) {
					t.Errorf("%s: got\n%s", id, got)
				}
			}
			if flag.Lookup("update").Value.String() == "true" {
				if err := os.WriteFile(filepath.Join("testdata", "channels.txtar"), txtar.Format(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// talk sends each line as a message and returns the responses without their
// random parts.
func talk(t *testing.T, conn *websocket.Conn, messages []byte) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var b strings.Builder
	for line := range strings.Lines(string(messages)) {
		if err := conn.Write(ctx, websocket.MessageText, []byte(strings.TrimSpace(line))); err != nil {
			t.Fatal(err)
		}
		for {
			_, data, err := conn.Read(ctx)
			if err != nil {
				fmt.Fprintf(&b, "closed: %v\n", websocket.CloseStatus(err))
				if _, reason, ok := strings.Cut(err.Error(), "reason = "); ok {
					fmt.Fprintf(&b, "because: %s\n", reason)
				}
				return b.String()
			}
			var m map[string]json.RawMessage
			if err := json.Unmarshal(data, &m); err != nil {
				t.Fatal(err)
			}
			var h map[string]json.RawMessage
			if err := json.Unmarshal(m["header"], &h); err != nil || string(h["msg_id"]) != string(m["msg_id"]) || string(h["msg_type"]) != string(m["msg_type"]) || len(h["session"]) < 10 {
				t.Fatalf("%s: %v", data, err)
			}
			delete(m, "msg_id")
			delete(m, "header")
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s\n", text)
			if strings.Contains(string(text), `"execution_state":"idle"`) {
				break
			}
		}
	}
	return b.String()
}
