package acme

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/schema"
)

// drivers represents a server's list of drivers.
var drivers = []brig.Driver{Driver()}

// TestDriverInServer performs the steps of a server, from an administrator's
// configuration to a program's output.
func TestDriverInServer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer acme_1" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"stdout":"hi\n","value":42}`)
	}))
	defer srv.Close()
	d := drivers[0]
	if fields := schema.Fields(d.Config()); len(fields) != 4 || !fields[1].Secret || fields[2].Default != "north" {
		t.Errorf("the form is %+v", fields)
	}
	for _, raw := range []string{`{}`, `{"endpoint":"ftp://x","api_key":"acme_1"}`, `{"endpoint":"https://x.example","api_key":"1"}`, `{"endpoint":"https://x.example","api_key":"acme_1","region":"west"}`} {
		if wrong := schema.Decode([]byte(raw), d.Config()); len(wrong) == 0 {
			t.Errorf("%s is taken", raw)
		}
	}
	config := d.Config()
	if wrong := schema.Decode([]byte(fmt.Sprintf(`{"endpoint":%q,"api_key":"acme_1"}`, srv.URL)), config); len(wrong) != 0 {
		t.Fatal(wrong)
	}
	called := 0
	p, err := d.Open(t.Context(), brig.ProviderEnv{ID: "acme", Log: slog.New(slog.DiscardHandler), Called: func(brig.Call) { called++ }}, config)
	if err != nil {
		t.Fatal(err)
	}
	runner, ok := p.(brig.Runner)
	if !ok || !p.Capabilities().RunsOnly {
		t.Fatalf("it is no runner: %+v", p.Capabilities())
	}
	var out bytes.Buffer
	o, err := runner.Run(t.Context(), "x", brig.Program{Language: brig.Python, Code: "print('hi')"}, brig.IO{Stdout: &out})
	if err != nil || string(o.Value) != "42" || out.String() != "hi\n" || called != 1 {
		t.Errorf("Run = %+v, %v; wrote %q; %d calls were told", o, err, out.String(), called)
	}
	if _, err := runner.Run(t.Context(), "x", brig.Program{Command: []string{"ls"}}, brig.IO{}); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("a command: %v", err)
	}
}
