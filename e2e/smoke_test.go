package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// TestRunOverREST verifies the result of a small program that is run through REST.
//
//suite:part core
func TestRunOverREST(t *testing.T) {
	s := startServer(t, t.TempDir())
	status, body := s.do("POST", "/v1/run", `{"language":"python","code":"def main(name, count):\n    print('hi')\n    return {\"message\": (\"Hello \"+name+\"! \")*count}","arguments":{"name":"World","count":3}}`)
	var a struct {
		Stdout   string
		ExitCode int `json:"exit_code"`
		Result   struct{ Message string }
		Error    any
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	if a.Result.Message != "Hello World! Hello World! Hello World! " || a.Stdout != "hi\n" || a.ExitCode != 0 || a.Error != nil {
		t.Errorf("answer %s", body)
	}
	if status, body := s.do("GET", "/v1/sandboxes", ""); status != 200 || strings.Contains(body, `"name"`) {
		t.Errorf("afterwards: %d %s", status, body)
	}
}

//suite:part core
func TestKernelIsGVisor(t *testing.T) {
	e, ctx := newEngine(t)
	o, err := e.Run(ctx, brig.Program{Command: []string{"uname", "-r"}}, brig.IO{})
	if err != nil || !strings.Contains(string(o.Stdout.Head), "gvisor") {
		t.Fatalf("%+v, %v", o, err)
	}
}
