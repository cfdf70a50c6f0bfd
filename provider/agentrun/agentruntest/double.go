// Package agentruntest is a double of Aliyun's AgentRun for tests. It serves
// both planes on one address, and checks both signatures as documented by the
// service. Its templates and sandboxes become ready after a delay, and tests
// can inject failures. A Machine runs the code.
package agentruntest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Machine is the environment that runs the code of a sandbox.
type Machine interface {
	// Execute runs code in a context. If the code fails, err is the failure.
	Execute(ctx context.Context, language, code string) (stdout, stderr string, err error)
	Read(path string) ([]byte, error)
	Close() error
}

// Options configure a Double. All are required except Slow and Token.
type Options struct {
	ID, Secret, Token, Account, Region string
	Machine                            func(id string) (Machine, error)
	// Slow is the number of status requests before a template or a sandbox is
	// ready.
	Slow int
}

// Failure replaces the normal handling of a request.
type Failure struct {
	Status  int
	Code    string
	Header  map[string]string
	Latency time.Duration // before the normal handling, if Status is 0
	Cut     bool          // the connection is closed after the request was handled
}

// Double is the service. It is an http.Handler.
type Double struct {
	o   Options
	mux *http.ServeMux

	mu        sync.Mutex // guards the fields below
	templates map[string]*resource
	sandboxes map[string]*resource
	failures  map[string][]Failure
	calls     []string
	nonces    map[string]bool
	made      int
}

// resource is a template or a sandbox.
type resource struct {
	fields   map[string]any
	polls    int
	machine  Machine
	contexts map[string]string // language by context
}

// New returns a double.
func New(o Options) *Double {
	d := &Double{
		o: o, mux: http.NewServeMux(), templates: map[string]*resource{}, sandboxes: map[string]*resource{},
		failures: map[string][]Failure{}, nonces: map[string]bool{},
	}
	d.control("ListTemplates", "GET /2025-09-10/templates", d.listTemplates)
	d.control("CreateTemplate", "POST /2025-09-10/templates", d.createTemplate)
	d.control("GetTemplate", "GET /2025-09-10/templates/{name}", d.getTemplate)
	d.control("DeleteTemplate", "DELETE /2025-09-10/templates/{name}", d.deleteTemplate)
	d.data("create", "POST /sandboxes", d.create)
	d.data("get", "GET /sandboxes/{id}", d.get)
	d.data("delete", "DELETE /sandboxes/{id}", d.delete)
	d.data("health", "GET /sandboxes/{id}/health", d.health)
	d.data("context", "POST /sandboxes/{id}/contexts", d.createContext)
	d.data("execute", "POST /sandboxes/{id}/contexts/execute", d.execute)
	d.data("download", "GET /sandboxes/{id}/filesystem/download", d.download)
	return d
}

// ServeHTTP implements http.Handler.
func (d *Double) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// Fail makes the next requests of an operation fail, one after the other.
func (d *Double) Fail(operation string, f ...Failure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failures[operation] = append(d.failures[operation], f...)
}

// Calls returns the operations since the last Calls, in order.
func (d *Double) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.calls
	d.calls = nil
	return out
}

// Live returns the number of sandboxes.
func (d *Double) Live() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.sandboxes)
}

// call is one request, whose body has been read.
type call struct {
	w    http.ResponseWriter
	r    *http.Request
	body []byte
}

func (d *Double) control(action, pattern string, f func(*call)) {
	d.handle(action, pattern, func(c *call) error { return d.checkControl(c, action) }, f)
}

func (d *Double) data(operation, pattern string, f func(*call)) {
	d.handle(operation, pattern, d.checkData, f)
}

func (d *Double) handle(operation, pattern string, check func(*call) error, f func(*call)) {
	d.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
		if err != nil {
			return
		}
		c := &call{w: w, r: r, body: body}
		d.mu.Lock()
		d.calls = append(d.calls, operation)
		var fail Failure
		if list := d.failures[operation]; len(list) > 0 {
			fail, d.failures[operation] = list[0], list[1:]
		}
		d.mu.Unlock()
		if fail.Latency > 0 {
			select {
			case <-time.After(fail.Latency):
			case <-r.Context().Done():
				return
			}
		}
		if err := check(c); err != nil {
			c.refuse(http.StatusForbidden, "SignatureDoesNotMatch", err.Error())
			return
		}
		if fail.Status != 0 {
			for k, v := range fail.Header {
				w.Header().Set(k, v)
			}
			c.refuse(fail.Status, fail.Code, "as the test wants it")
			return
		}
		if fail.Cut {
			f(&call{w: discardWriter{http.Header{}}, r: r, body: body})
			_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) // fails for writers that are not connections
			return
		}
		f(c)
	})
}

// discardWriter discards a response.
type discardWriter struct{ h http.Header }

// Header implements http.ResponseWriter.
func (n discardWriter) Header() http.Header { return n.h }

// Write implements http.ResponseWriter.
func (n discardWriter) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader implements http.ResponseWriter.
func (n discardWriter) WriteHeader(int) {}

const requestID = "double-0001"

func (c *call) refuse(status int, code, message string) {
	c.respond(status, map[string]any{"code": code, "message": message, "requestId": requestID})
}

// respondOK responds with data in the envelope.
func (c *call) respondOK(data any) {
	c.respond(http.StatusOK, map[string]any{"code": "SUCCESS", "data": data, "requestId": requestID})
}

func (c *call) respond(status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"code":"InternalError"}`)
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("X-Acs-Request-Id", requestID)
	c.w.WriteHeader(status)
	_, _ = c.w.Write(b) // ignore the error: the client may have disconnected
}

// in parses the body, which must be a JSON object with the given fields.
func (c *call) in(fields ...string) (map[string]any, bool) {
	var v map[string]any
	if err := json.Unmarshal(c.body, &v); err != nil {
		c.refuse(http.StatusBadRequest, "InvalidParameter", "the body is not a JSON object")
		return nil, false
	}
	for _, f := range fields {
		if s, ok := v[f].(string); !ok || s == "" {
			c.refuse(http.StatusBadRequest, "InvalidParameter", fmt.Sprintf("%s is missing", f))
			return nil, false
		}
	}
	if ct := c.r.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/json") {
		c.refuse(http.StatusUnsupportedMediaType, "UnsupportedMediaType", ct)
		return nil, false
	}
	return v, true
}
