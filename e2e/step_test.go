package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// TestStepsKeepState verifies that each step runs in a new sandbox with the state of the previous step,
// and that the server's records do not contain that state.
//
//suite:part core
func TestStepsKeepState(t *testing.T) {
	needRoot(t)
	s := startServer(t, dataDir(t))
	c := s.client()
	var state json.RawMessage
	sandboxes := map[string]bool{}
	step := func(count int, code string) *brig.Outcome {
		t.Helper()
		o, err := c.Run(t.Context(), brig.Program{Language: brig.Python, Code: code, Step: &brig.Step{State: state, Count: count}}, brig.IO{})
		if err != nil {
			t.Fatal(err)
		}
		if o.Step == nil || len(o.Step.State) == 0 || sandboxes[o.Sandbox] {
			t.Fatalf("%q left nothing, or where another had been: %+v", code, o)
		}
		sandboxes[o.Sandbox], state = true, o.Step.State
		kept, err := c.GetRun(t.Context(), o.Sandbox)
		if err != nil || kept.Step != nil {
			t.Errorf("what a step left is kept: %+v %v", kept, err)
		}
		return o
	}
	step(0, "def double(x): return 2 * x\nkept = [double(3)]\nopen('/workspace/planted', 'w').write('x')")
	o := step(1, "import os\nprint('file', os.path.exists('/workspace/planted'))\nkept.append(double(4))\nkept")
	if string(o.Stdout.Head) != "file False\n" || len(o.Step.Outputs) != 1 || string(o.Step.Outputs[0].Data["text/plain"]) != `"[6, 8]"` || !o.Step.Outputs[0].Main || o.Error != nil || o.ExitCode != 0 {
		t.Errorf("%+v %s", o, o.Stdout.Head)
	}
	o = step(2, "import threading\nlock = threading.Lock()\nkept.append('still')\n1 / 0")
	if o.Error == nil || o.Error.Name != "ZeroDivisionError" || o.ExitCode != 1 || !strings.Contains(string(o.Stderr.Head), "brig: lock is not carried to the next step: ") {
		t.Errorf("%+v %s", o.Error, o.Stderr.Head)
	}
	if o = step(3, "kept"); string(o.Step.Outputs[0].Data["text/plain"]) != `"[6, 8, 'still']"` {
		t.Errorf("%s", o.Step.Outputs[0].Data)
	}
	// The server rejects an invalid state. A valid state that was not written by a step defines
	// no names.
	_, err := c.Run(t.Context(), brig.Program{Language: brig.Python, Code: "1", Step: &brig.Step{State: json.RawMessage(`[]`)}}, brig.IO{})
	if brig.KindOf(err) != brig.InvalidArgument {
		t.Errorf("a list for a state: %v", err)
	}
	state = json.RawMessage(`{"v":1,"names":{"x":{"at":0}},"heap":[["global","os","no_such_thing"]],"sources":{}}`)
	if o = step(4, "'x' in globals()"); string(o.Step.Outputs[0].Data["text/plain"]) != `"False"` || !strings.Contains(string(o.Stderr.Head), "brig: x was not carried into this step: ") {
		t.Errorf("%s %s", o.Step.Outputs[0].Data, o.Stderr.Head)
	}
}
