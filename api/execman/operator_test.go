package execman_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/execman"
	"github.com/brig-run/brig/api/v1"
)

// An error that only the operator can fix is not reported as a busy pool, because clients retry
// when the pool is busy. Control: a lack of capacity is reported as a busy pool.
func TestOperatorErrorsAreNotBusy(t *testing.T) {
	srv, _ := serve(t, nil)
	for kind, room := range map[brig.Kind]bool{
		brig.NotInitialized: false, brig.ConnectionFailed: false, brig.InvalidConfig: false,
		brig.Unavailable: true, brig.CreationFailed: true,
	} {
		_, r := run(t, srv.URL, requestJSON("python", string(kind)+"\n", `{}`))
		if r.Status != v1.ExecmanRunner || (r.Stderr == "Container pool is busy") != room || (r.Detail == v1.ExecmanNoneFree) != room {
			t.Errorf("%s: %+v", kind, r)
		}
		if !room && !strings.Contains(r.Stderr, "it is "+string(kind)) {
			t.Errorf("%s: the answer does not say what is wrong: %+v", kind, r)
		}
	}
}

// lastProgram is a Service that records the last program.
type lastProgram struct{ last brig.Program }

func (k *lastProgram) Run(_ context.Context, p brig.Program, _ brig.IO) (*brig.Outcome, error) {
	k.last = p
	o := &brig.Outcome{Value: []byte("1")}
	o.Done = true
	return o, nil
}

// Programs get the configured egress rules. Without configured rules, programs cannot connect.
func TestProgramsGetConfiguredEgress(t *testing.T) {
	for name, want := range map[string]brig.Egress{"set": {Rules: []brig.EgressRule{{Host: "pypi.org"}}}, "not set": {}} {
		k := &lastProgram{}
		srv, _ := serve(t, func(o *execman.Options) { o.Service, o.Egress = k, want })
		if _, r := run(t, srv.URL, requestJSON("python", "def main(): return 1\n", `{}`)); r.Status != v1.ExecmanSuccess {
			t.Errorf("%s: %+v", name, r)
		}
		if !reflect.DeepEqual(k.last.Egress, want) {
			t.Errorf("%s: a program has %+v", name, k.last.Egress)
		}
	}
}
