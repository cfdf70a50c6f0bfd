package execman_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/execman"
	"github.com/brig-run/brig/api/httpapi/transcript"
	"github.com/brig-run/brig/api/v1"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// scriptedService is a Service that interprets the first line of a program as a
// command.
type scriptedService struct {
	release chan struct{} // ends waiting programs
}

func outputOf(s string) brig.Output { return brig.Output{Head: []byte(s), Total: int64(len(s))} }

// Run implements execman.Service.
func (s *scriptedService) Run(ctx context.Context, p brig.Program, sio brig.IO) (*brig.Outcome, error) {
	o := &brig.Outcome{Sandbox: "py-1"}
	o.Done, o.Duration, o.Stdout = true, 12*time.Millisecond, outputOf("said\n")
	word, _, _ := strings.Cut(p.Code, "\n")
	failed := func(code int, stderr string) (*brig.Outcome, error) {
		o.ExitCode, o.Stderr = code, outputOf(stderr)
		return o, nil
	}
	switch word {
	case "echo":
		o.Value = p.Arguments
		o.Stdout = outputOf(fmt.Sprintf("%s as %s in %v\n", p.Language, brig.ActorFrom(ctx).Name, p.Timeout))
	case "artifacts":
		o.Value = json.RawMessage(`null`)
		o.Artifacts = []brig.File{{Path: "plot.png", Data: []byte("\x89PNG")}, {Path: "in/deep.csv", Data: []byte("a")}, {Path: "empty.csv"}, {Path: "A.CSV", Data: []byte("a,b")}}
	case "novalue":
	case "time":
		o.TimedOut, o.ExitCode = true, 124
	case "deaf":
		o.TimedOut, o.ExitCode, o.Signal = true, 124, "SIGKILL"
	case "memory":
		o.OOMKilled, o.ExitCode = true, 137
	case "exit":
		return failed(7, "Traceback (most recent call last):\nValueError: no\n")
	case "file":
		return failed(1, "PermissionError: [Errno 13] Permission denied: '/etc/shadow'\n")
	case "syscall":
		return failed(1, "PermissionError: [Errno 1] Operation not permitted\n")
	case "memoryerror":
		return failed(1, "MemoryError\n")
	case "toolarge":
		o.Error = &brig.ProgramError{Name: "ValueTooLarge", Message: "main returned more than 8MiB of JSON"}
	case "bytes":
		o.Value, o.Stdout = json.RawMessage(`1`), brig.Output{Head: []byte("a\xff"), Tail: []byte("z"), Total: 100}
	case "unsafe":
		return nil, brig.Errorf(brig.PolicyBlocked, "Code is unsafe. Line 1: Import: os; Line 2: Call: eval")
	case "wait":
		select {
		case <-s.release:
			o.Value = json.RawMessage(`1`)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	default:
		if k := brig.Kind(word); slices.Contains(brig.Kinds, k) {
			return nil, brig.Errorf(k, "it is %s", k)
		}
	}
	return o, nil
}

func serve(t *testing.T, change func(*execman.Options)) (*httptest.Server, *scriptedService) {
	t.Helper()
	s := &scriptedService{release: make(chan struct{})}
	o := execman.Options{Service: s, Actor: brig.Actor{Name: "execman", Tenant: "default", Role: brig.Member}}
	if change != nil {
		change(&o)
	}
	srv := httptest.NewServer(execman.New(o))
	t.Cleanup(srv.Close)
	return srv, s
}

func requestJSON(language, code, arguments string) string {
	b := base64.StdEncoding.EncodeToString([]byte(code))
	return fmt.Sprintf(`{"code_b64":%q,"language":%q,"arguments":%s}`, b, language, arguments)
}

func run(t *testing.T, url, body string) (int, *v1.ExecmanResult) {
	t.Helper()
	resp, err := http.Post(url+"/run", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var r v1.ExecmanResult
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, &r
}

// TestResponsesMatchTranscripts replays requests and compares the responses byte for byte. In
// requests, CODE(…) represents the base64 of its text.
func TestResponsesMatchTranscripts(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, name := range names {
		srv, _ := serve(t, nil)
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		written := &txtar.Archive{Comment: a.Comment}
		for _, f := range a.Files {
			id, ok := strings.CutSuffix(f.Name, ".req")
			if !ok {
				continue
			}
			got := replay(t, srv.URL, string(f.Data))
			written.Files = append(written.Files, f, txtar.File{Name: id + ".resp", Data: []byte(got)})
			i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == id+".resp" })
			switch {
			case *update:
			case i < 0:
				t.Errorf("%s has no answer; go test -update", id)
			case got != string(a.Files[i].Data):
				t.Errorf("%s: got\n%s\nwant\n%s", id, got, a.Files[i].Data)
			}
		}
		if *update {
			if err := os.WriteFile(name, txtar.Format(written), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func replay(t *testing.T, url, text string) string {
	t.Helper()
	if before, rest, ok := strings.Cut(text, "CODE("); ok {
		code, after, _ := strings.Cut(rest, ")")
		text = before + base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(code, `\n`, "\n"))) + after
	}
	head, body, _ := strings.Cut(text, "\n\n")
	r := bufio.NewScanner(strings.NewReader(head))
	r.Scan()
	method, path, _ := strings.Cut(r.Text(), " ")
	req, err := http.NewRequest(method, url+path, strings.NewReader(strings.TrimSuffix(body, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	for r.Scan() {
		k, v, _ := strings.Cut(r.Text(), ": ")
		if k == "Host" {
			req.Host = v
			continue
		}
		req.Header.Set(k, v)
	}
	resp, body := transcript.Fetch(t, req)
	return fmt.Sprintf("%d %s\n%s\n", resp.StatusCode, resp.Header.Get("Content-Type"), strings.TrimSuffix(body, "\n"))
}

// Every error kind has a response. The status is 200 unless the client caused
// the error.
func TestEveryErrorKindHasResponse(t *testing.T) {
	srv, _ := serve(t, nil)
	for _, k := range brig.Kinds {
		status, r := run(t, srv.URL, requestJSON("python", string(k)+"\n", `{}`))
		switch {
		case k == brig.Canceled:
			if status != 499 {
				t.Errorf("%s is %d", k, status)
			}
		case status != 200 || r.Status != v1.ExecmanRunner || !slices.Contains([]int{-3, -10, -429, -999}, r.ExitCode) || r.Detail == "" || r.Stdout != "":
			t.Errorf("%s is %d %+v", k, status, r)
		case k == brig.Internal && strings.Contains(r.Stderr, "it is"):
			t.Errorf("an internal error tells its cause: %+v", r)
		}
	}
}

// In a pool of one, the second program waits for the first. If a program waits too long, the
// response reports that the pool is busy. Each language has its own pool.
func TestFullPoolReportsBusy(t *testing.T) {
	srv, s := serve(t, func(o *execman.Options) { o.Pool, o.Queue = 1, 300*time.Millisecond })
	first := make(chan *v1.ExecmanResult, 1)
	go func() { _, r := run(t, srv.URL, requestJSON("python", "wait\n", `{}`)); first <- r }()
	time.Sleep(50 * time.Millisecond)
	if _, r := run(t, srv.URL, requestJSON("python", "echo\n", `{}`)); r.ExitCode != -10 || r.Detail != "no_available_container" || r.Stderr != "Container pool is busy" {
		t.Errorf("one too many: %+v", r)
	}
	if _, r := run(t, srv.URL, requestJSON("nodejs", "echo\n", `{}`)); r.Status != v1.ExecmanSuccess {
		t.Errorf("another language: %+v", r)
	}
	second := make(chan *v1.ExecmanResult, 1)
	go func() { _, r := run(t, srv.URL, requestJSON("python", "echo\n", `{}`)); second <- r }()
	time.Sleep(50 * time.Millisecond)
	close(s.release)
	if r := <-first; r.Status != v1.ExecmanSuccess {
		t.Errorf("the first: %+v", r)
	}
	if r := <-second; r.Status != v1.ExecmanSuccess {
		t.Errorf("the second: %+v", r)
	}
}

// A client whose address is not allowed is rejected before its request is read.
// Control: from an allowed address, the same request is served.
func TestOtherAddressesAreRejected(t *testing.T) {
	for _, c := range []struct {
		allow string
		from  string
		want  int
	}{
		{"", "127.0.0.1:1", 200}, {"", "[::1]:1", 200}, {"", "10.0.0.7:1", 403}, {"", "192.0.2.1:1", 403},
		{"10.0.0.0/8", "10.0.0.7:1", 200}, {"10.0.0.0/8", "[::ffff:10.0.0.7]:1", 200}, {"10.0.0.0/8", "11.0.0.7:1", 403},
		{"10.0.0.0/8", "127.0.0.1:1", 403}, {"0.0.0.0/0", "203.0.113.9:1", 200}, {"fd00::/8", "[fd00::1]:1", 200}, {"fd00::/8", "nonsense", 403},
	} {
		o := execman.Options{Service: &scriptedService{}}
		if c.allow != "" {
			o.Allow = []netip.Prefix{netip.MustParsePrefix(c.allow)}
		}
		door := execman.New(o)
		for _, path := range []string{"/healthz", "/"} {
			r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
			r.RemoteAddr = c.from
			w := httptest.NewRecorder()
			if door.ServeHTTP(w, r); w.Code != c.want {
				t.Errorf("%s from %s where %q is allowed: %d, want %d", path, c.from, c.allow, w.Code, c.want)
			}
		}
	}
}

// When a client disconnects, its program ends.
func TestDisconnectEndsProgram(t *testing.T) {
	srv, s := serve(t, func(o *execman.Options) { o.Pool, o.Queue = 1, 100*time.Millisecond })
	defer close(s.release)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/run", strings.NewReader(requestJSON("python", "wait\n", `{}`)))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Fatal("it was answered")
	}
	for range 50 {
		if _, r := run(t, srv.URL, requestJSON("python", "echo\n", `{}`)); r.Status == v1.ExecmanSuccess {
			return
		}
	}
	t.Error("the program still has its place")
}

// Every input is answered with a result, with an error that has details, or
// with 499 if the program was canceled.
func FuzzRun(f *testing.F) {
	for _, seed := range []string{
		requestJSON("python", "echo\n", `{"a":[1,null,"é"]}`), requestJSON("nodejs", "exit\n", `{}`), `{}`, `[]`, `null`, ``, `{"code_b64":null}`,
		`{"code_b64":"!!","language":"python"}`, `{"code_b64":"/w==","language":"python"}`, `{"code_b64":"","language":"ruby"}`,
		`{"code_b64":"","language":"python","arguments":[]}`, `{"code_b64":"ZWNobwo=","language":"python","arguments":null,"base_image":"x"}`,
		`{"code_b64":"ZWNobwo=","language":"python","arguments":{"a":1,"a":2},"code_b64":7}`,
	} {
		f.Add([]byte(seed))
	}
	door := execman.New(execman.Options{Service: &scriptedService{release: closed()}, Actor: brig.Actor{Name: "ragflow", Tenant: "acme", Role: brig.Member}})
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/run", bytes.NewReader(body))
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		door.ServeHTTP(w, r)
		var response map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &response); err != nil {
			t.Fatalf("%d %q is no JSON: %v", w.Code, w.Body, err)
		}
		switch w.Code {
		case 200:
			var r v1.ExecmanResult
			if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || r.Status == "" || (r.Status == v1.ExecmanSuccess) != (r.ExitCode == 0) {
				t.Fatalf("%s: %v", w.Body, err)
			}
		case 422:
			if list, ok := response["detail"].([]any); !ok || len(list) == 0 {
				t.Fatalf("a refusal without a detail: %s", w.Body)
			}
		case 499:
		default:
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	})
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
