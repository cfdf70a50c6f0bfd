package envd

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/brig-run/brig"
	fs "github.com/brig-run/brig/api/e2b/envd/filesystempb"
	proc "github.com/brig-run/brig/api/e2b/envd/processpb"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/httpapi/transcript"
)

// No procedure reads a message before the caller has been authorized. The test reads the list
// of procedures from the protocol's description.
func TestProceduresAuthorizeBeforeReading(t *testing.T) {
	paths := []string{filesPath + "?path=/a", composePath}
	for _, f := range []protoreflect.FileDescriptor{proc.File_api_e2b_envd_process_proto, fs.File_api_e2b_envd_filesystem_proto} {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				paths = append(paths, "/"+string(s.FullName())+"/"+string(s.Methods().Get(j).Name()))
			}
		}
	}
	if len(paths) != len(gates) {
		t.Errorf("%d paths and %d rows", len(paths), len(gates))
	}
	for _, path := range paths {
		name, _, _ := strings.Cut(path, "?")
		op := gates[name].op
		for scope, may := range map[string]bool{op.Name: true, "run.kernel": false} {
			e := New(Options{Service: writeStub{}})
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				actor := brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Member, Scopes: []string{scope}}
				e.Serve(w, r.WithContext(brig.WithActor(r.Context(), actor)), Sandbox{ID: "sb1"})
			})
			kind := "application/json"
			switch {
			case name == filesPath:
				kind = "application/octet-stream"
			case strings.HasSuffix(name, "/Start"), strings.HasSuffix(name, "/Connect"), strings.HasSuffix(name, "/StreamInput"), strings.HasSuffix(name, "/WatchDir"):
				kind = "application/connect+json"
			}
			w, read := transcript.SendLong(h, http.MethodPost, path, "Content-Type", kind)
			refused := w.Code == http.StatusForbidden || strings.Contains(w.Body.String(), `"permission_denied"`)
			if read != may || refused == may {
				t.Errorf("%s with the scope %s: %d %.200s, the body was read: %v", path, scope, w.Code, w.Body, read)
			}
			e.Close()
		}
	}
}

// writeStub is a Service that reads the first bytes of a file.
type writeStub struct{ brig.Service }

func (writeStub) Files(string) brig.Files { return writeStubFiles{} }

type writeStubFiles struct{ brig.Files }

func (writeStubFiles) Write(_ context.Context, _ brig.Path, _ brig.FileWrite, r io.Reader) (*brig.Entry, error) {
	_, err := r.Read(make([]byte, 1))
	return &brig.Entry{}, err
}

// The memory for a message never exceeds the limit, even if the message declares a length of 4
// GiB or expands beyond the limit.
func TestMessageLimit(t *testing.T) {
	e := New(Options{Service: writeStub{}})
	defer e.Close()
	front := httpapi.NewLimiter(httpapi.Limits{Bodies: 12 << 20})
	h := front.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor := brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Member}
		e.Serve(w, r.WithContext(brig.WithActor(r.Context(), actor)), Sandbox{ID: "sb1"})
	}))
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(bytes.Repeat([]byte(" "), 64<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		path, kind, encoding string
		body                 []byte
		code                 string
	}{
		"a length of 4 GiB":                {proc.ProcessStartProcedure, "application/connect+json", "", append([]byte{0, 255, 255, 255, 255}, make([]byte, 1<<16)...), "resource_exhausted"},
		"a bomb in a small message":        {fs.FilesystemStatProcedure, "application/json", "gzip", bomb.Bytes(), "resource_exhausted"},
		"a message larger than the budget": {proc.ProcessSendInputProcedure, "application/json", "", bytes.Repeat([]byte(" "), 20<<20), "resource_exhausted"},
		"a bomb larger than the budget":    {proc.ProcessSendInputProcedure, "application/json", "gzip", bomb.Bytes(), "resource_exhausted"},
	} {
		r := httptest.NewRequest(http.MethodPost, c.path, bytes.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		if c.encoding != "" {
			r.Header.Set("Content-Encoding", c.encoding)
		}
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		h.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		if !strings.Contains(w.Body.String(), c.code) {
			t.Errorf("%s: %d %.300s", what, w.Code, w.Body)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 128<<20 { // the race detector needs more
			t.Errorf("%s took %d MiB", what, took>>20)
		}
		if front.InUse() != 0 {
			t.Errorf("%s: %d bytes are held afterwards", what, front.InUse())
		}
	}
}

// A compressed message reserves no more memory than the size to which it can expand. While its
// stream runs, it reserves only its real size, so that many streams of small messages fit the
// budget. Control: a large message reserves the limit.
func TestStreamMessageAccounting(t *testing.T) {
	for _, c := range []struct {
		size       int
		compressed bool
		ahead      int
	}{{100, false, 0}, {100, true, 100 * deflated}, {1 << 20, true, mediumMessage}} {
		front := httpapi.NewLimiter(httpapi.Limits{})
		h := front.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			lease := httpapi.LeaseOf(r.Context())
			b := &countedBody{
				ReadCloser: io.NopCloser(bytes.NewReader(make([]byte, c.size))), maxBytes: mediumMessage, compressed: c.compressed,
				release: func(n int) { lease.Release(int64(n)) }, reserve: func(n int) error { return lease.Reserve("acme", int64(n)) },
			}
			for _, step := range []struct {
				do   func()
				want int
			}{
				{func() { _, _ = io.Copy(io.Discard, b) }, c.size + c.ahead},
				{func() { b.releaseExcept(50) }, 50}, {func() { b.releaseExcept(2000) }, 50}, {b.releaseRead, 0},
			} {
				step.do()
				if got := front.InUse(); got != int64(step.want) {
					t.Errorf("%+v: %d bytes are held, want %d", c, got, step.want)
				}
			}
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	}
}
