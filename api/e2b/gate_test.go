package e2b

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi/transcript"
	"github.com/brig-run/brig/builder"
	"github.com/brig-run/brig/store/mem"
)

// oneSandbox is a Service with one sandbox.
type oneSandbox struct{ brig.Service }

func (oneSandbox) Get(_ context.Context, id string) (*brig.Sandbox, error) {
	return &brig.Sandbox{ID: brig.ID(id), Tenant: "acme", State: brig.Running, Spec: brig.Spec{Labels: map[string]string{labelAPI: "v2"}}}, nil
}

// No route reads a body before the caller has been authorized. A route that is missing in the
// map bodies does not read a body.
func TestRoutesAuthorizeBeforeReading(t *testing.T) {
	builds, err := builder.New(t.Context(), builder.Options{Store: mem.New(), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	d := New(Options{Service: oneSandbox{}, Keys: transcript.RoleKeys{}, Seed: []byte("seed"), Builder: builds})
	var all []transcript.AuthorizedRequest
	seen := 0
	for _, rt := range d.controlPlane.routes() {
		op, ok := bodies[rt.method+" "+rt.pattern]
		if !ok {
			continue
		}
		seen++
		all = append(all, transcript.AuthorizedRequest{
			Method: rt.method, Path: "http://127.0.0.1" + strings.Replace(rt.pattern, "{id}", "sb1", 1), Role: op.Role,
		})
	}
	if seen != len(bodies) {
		t.Errorf("%d of %d rows of bodies are routes", seen, len(bodies))
	}
	transcript.CheckAuthorization(t, d, all)
}

// The code interpreter also authorizes a request before it reads the body. The token may belong
// to a grant with scopes.
func TestInterpreterAuthorizesBeforeReading(t *testing.T) {
	for _, path := range []string{"/execute", "/contexts"} {
		for scope, may := range map[string]bool{"context.": true, "file.": false} {
			actor := brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Member, Key: "k1", Scopes: []string{scope}}
			d := New(Options{
				Service: oneSandbox{}, Keys: transcript.RoleKeys{}, Seed: []byte("seed"),
				Owner:    func(context.Context, string) (string, error) { return "acme", nil },
				KeyActor: func(context.Context, string) (brig.Actor, error) { return actor, nil },
			})
			w, read := transcript.SendLong(d, http.MethodPost, "http://127.0.0.1"+path,
				"E2b-Sandbox-Id", "sb1", "E2b-Sandbox-Port", "49999", "X-Access-Token", d.tokens.token("sb1", "k1"))
			if read != may || may == (w.Code == http.StatusForbidden) {
				t.Errorf("%s with the scope %s: %d, the body was read: %v", path, scope, w.Code, read)
			}
		}
	}
}
