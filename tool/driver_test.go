package tool_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/tool"
)

// callResult is the result of one call of a driver that runs on the host.
type callResult struct {
	reports   []*tool.Report // all signed reports
	malformed bool
	lines     []string // the lines on the channel
	code      int
	stderr    string
}

// first returns the report that a host would use, or nil if none arrived.
func (c callResult) first() *tool.Report {
	if len(c.reports) == 0 {
		return nil
	}
	return c.reports[0]
}

// value returns the function's return value as JSON, or the reason why there is
// none.
func (c callResult) value() string {
	switch r := c.first(); {
	case r != nil && r.Failure != nil:
		return r.Failure.Name
	case r != nil:
		return string(r.Value)
	case c.malformed || c.code == tool.ExitLostChannel:
		return "corrupted"
	}
	return fmt.Sprintf("exit %d", c.code)
}

// runDriver calls a function with the driver of a language. If change is not nil,
// it modifies the source of the driver. Unlike the engine, runDriver continues to
// read after the first report.
func runDriver(t *testing.T, l brig.Language, o tool.DriverRequest, change func(string) string) callResult {
	t.Helper()
	argv, patience := tool.Argv(l), 20*time.Second
	if change != nil {
		patience = 5 * time.Second // without its protection, the driver may wait forever for a response
		changed := change(argv[len(argv)-1])
		if changed == argv[len(argv)-1] {
			t.Fatal("the driver has no such protection")
		}
		argv[len(argv)-1] = changed
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetNonblock(fds[0], true); err != nil { // so that it supports deadlines
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	var stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stderr, cmd.ExtraFiles, cmd.WaitDelay = t.TempDir(), &stderr, []*os.File{theirs}, time.Second
	if err := cmd.Start(); err != nil {
		t.Skipf("this machine has no %s: %v", argv[0], err)
	}
	theirs.Close()
	r := tool.Receiver{Key: tool.NewKey()}
	o.Key = r.Key.String()
	if o.Arguments == nil {
		o.Arguments = json.RawMessage("{}")
	}
	if o.Packages == nil {
		o.Packages = []string{}
	}
	if o.Parameters == nil {
		o.Parameters = []string{}
	}
	order, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Write(append(order, '\n')); err != nil {
		t.Fatal(err)
	}
	var c callResult
	_ = ours.SetReadDeadline(time.Now().Add(patience))
	lines := bufio.NewReader(ours)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // an incomplete line is ignored
		}
		c.lines = append(c.lines, line)
		if report := r.Receive([]byte(line)); report != nil {
			c.reports = append(c.reports, report)
			if len(c.reports) == 1 { // a child process may send further reports
				_ = ours.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
				_ = syscall.Shutdown(fds[0], syscall.SHUT_WR)
			}
		}
	}
	_ = cmd.Wait()
	c.code, c.malformed, c.stderr = cmd.ProcessState.ExitCode(), r.Garbled, stderr.String()
	return c
}

// newReplacement returns a function that replaces a part of a driver's source.
func newReplacement(piece, instead string) func(string) string {
	return func(driver string) string { return strings.Replace(driver, piece, instead, 1) }
}

// TestChannelAttacksFail checks that each attack fails, and that it succeeds when
// the protection against it is removed from the driver.
func TestChannelAttacksFail(t *testing.T) {
	const rogue = "import json, os, sys\nframe = json.dumps({'type': 'report', 'size': 16, 'sum': '00' * 32, 'payload': '{\"value\":\"rogue\"}'})\n"
	for _, c := range []struct {
		name, source, want string
		off                func(string) string
		fails              func(callResult) bool // reports whether the attack succeeds without the protection
	}{
		{
			"a child that returns", "import os\ndef f():\n    if os.fork():\n        os.wait()\n        return 'right'\n    return 'child'", `"right"`,
			newReplacement("if os.getpid() != parent:", "if False:"), func(c callResult) bool { return c.value() == `"child"` },
		},
		{
			"a child of the C library's", "import ctypes, os\ndef f():\n    if ctypes.CDLL(None).fork():\n        os.wait()\n        return 'right'\n    return 'child'", `"right"`,
			newReplacement("if os.getpid() != parent:", "if False:"), func(c callResult) bool { return c.value() == `"child"` },
		},
		{
			"a line without an end", "import os\ndef f():\n    os.write(3, b'{\"type\":')\n    return 'right'", `"right"`,
			func(d string) string {
				_, rest, _ := strings.Cut(d, `            send(b'\n{"type":"report"`)
				before, _, _ := strings.Cut(d, `            send(b'\n{"type":"returning"`)
				return before + `            send(b'{"type":"report"` + rest
			}, func(c callResult) bool { return c.value() != `"right"` },
		},
		{
			"another json", "import json\ndef f():\n    json.dumps = lambda *a, **k: '{\"value\":\"rogue\"}'\n    return 'right'", `"right"`,
			newReplacement("payload = dumps(report)", "payload = json.dumps(report)"), func(c callResult) bool { return c.value() == `"rogue"` },
		},
		{
			"another os.write", "import os\ndef f():\n    os.write = lambda fd, data: len(data)\n    return 'right'", `"right"`,
			newReplacement("data = data[write(CHANNEL, data) :]", "data = data[os.write(CHANNEL, data) :]"), func(c callResult) bool { return c.first() == nil },
		},
		{
			"another hmac", "import hmac\ndef f():\n    hmac.new = None\n    return 'right'", `"right"`,
			newReplacement("total = sign(key", "total = hmac.new(key"), func(c callResult) bool { return c.first() == nil },
		},
		{
			"a channel that is closed", rogue + "def f():\n    os.close(3)\n    return 'right'", "corrupted",
			newReplacement("os._exit(LOST)", "os._exit(0)"), func(c callResult) bool { return c.value() == "exit 0" },
		},
		{
			"the end in a frame", rogue + "def f():\n    os.write(3, frame[:40].encode() + b'\\n')\n    os._exit(0)", "corrupted", nil, nil,
		},
		{
			"a frame of its own", rogue + "def f():\n    os.write(3, frame.encode() + b'\\n')\n    return 'right'", `"right"`, nil, nil,
		},
		{
			"its own death", "import os\ndef f():\n    os._exit(3)", "exit 3", nil, nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := runDriver(t, brig.Python, tool.DriverRequest{Source: c.source}, nil)
			if got.value() != c.want || len(got.reports) > 1 {
				t.Errorf("%s in %d reports, want %s: %q %s", got.value(), len(got.reports), c.want, got.lines, got.stderr)
			}
			if c.off == nil {
				return
			}
			if got := runDriver(t, brig.Python, tool.DriverRequest{Source: c.source}, c.off); !c.fails(got) {
				t.Errorf("without the protection nothing is gained: %s in %d reports", got.value(), len(got.reports))
			}
		})
	}
}

// TestForgedFramesAreIgnored checks that a receiver ignores frames that were not signed with
// its key. The control is a receiver with the right key, which accepts the frame.
func TestForgedFramesAreIgnored(t *testing.T) {
	got := runDriver(t, brig.Python, tool.DriverRequest{Source: "def f():\n    return 'right'"}, nil)
	frame := ""
	for _, line := range got.lines {
		if strings.Contains(line, `"report"`) {
			frame = line
		}
	}
	if got.first() == nil || frame == "" {
		t.Fatalf("no report: %q %s", got.lines, got.stderr)
	}
	other := tool.Receiver{Key: tool.NewKey()}
	for _, forged := range []string{frame, strings.Replace(frame, "right", "wrong", 1), strings.Replace(frame, `"sum":"`, `"sum":"00`, 1), frame[:len(frame)/2], "null", "[]", `{"type":"report"}`} {
		if r := other.Receive([]byte(forged)); r != nil || !other.Garbled {
			t.Errorf("%q is taken for %+v", forged, r)
		}
	}
	// A blank line is not a report and does not change Garbled.
	if r := other.Receive([]byte(" \n")); r != nil || !other.Garbled {
		t.Error("an empty line is something")
	}
}

func TestPythonDriverRunsTools(t *testing.T) {
	for _, c := range []struct {
		name, source string
		order        tool.DriverRequest
		want, text   string
	}{
		{"the last function", "def a():\n    return 1\n\nasync def b():\n    return 2", tool.DriverRequest{}, "2", "2"},
		{"the one that is named", "def a():\n    return 1\n\ndef b():\n    return 2", tool.DriverRequest{Name: "a"}, "1", "1"},
		{"none", "x = 1", tool.DriverRequest{}, "NameError", ""},
		{"no such", "x = 1", tool.DriverRequest{Name: "f"}, "NameError", ""},
		{"nothing", "def f():\n    pass", tool.DriverRequest{}, "null", "None"},
		{"text", "def f():\n    return 'é\\ud800'", tool.DriverRequest{}, `"\u00e9\ufffd"`, ""},
		{"a set", "def f():\n    return {1}", tool.DriverRequest{}, "[1]", "[1]"},
		{"a date", "import datetime\ndef f():\n    return {'a': datetime.date(2026, 1, 2)}", tool.DriverRequest{}, `{"a": "2026-01-02"}`, `{"a": "2026-01-02"}`},
		{"keys that are no text", "def f():\n    return {(1, 2): 3}", tool.DriverRequest{}, `"{(1, 2): 3}"`, ""},
		{"not a number", "def f():\n    return float('nan')", tool.DriverRequest{}, `"nan"`, ""},
		{"a class", "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f():\n    return P(1)", tool.DriverRequest{}, `{"x": 1}`, `{"x": 1}`},
		{"names of typing", "def f(a: Optional[List[int]] = None):\n    return a", tool.DriverRequest{Arguments: json.RawMessage(`{"a":[1]}`)}, "[1]", "[1]"},
		{"a float", "def f(a: float):\n    return type(a).__name__", tool.DriverRequest{Arguments: json.RawMessage(`{"a":1}`)}, `"float"`, ""},
		{"arguments that it has not", "def f(a):\n    return a", tool.DriverRequest{Arguments: json.RawMessage(`{"a":1,"request_heartbeat":true}`)}, "1", "1"},
		{"an argument too few", "def f(a):\n    return a", tool.DriverRequest{}, "TypeError", ""},
		{"its end", "def f():\n    raise SystemExit(0)", tool.DriverRequest{}, "SystemExit", ""},
		{"an exception without a text", "class E(Exception):\n    def __str__(self):\n        1/0\ndef f():\n    raise E", tool.DriverRequest{}, "E", ""},
		{"recursion", "def f():\n    return f()", tool.DriverRequest{}, "RecursionError", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.order.Source = c.source
			got := runDriver(t, brig.Python, c.order, nil)
			if got.value() != c.want {
				t.Errorf("%s, want %s: %s", got.value(), c.want, got.stderr)
			}
			if r := got.first(); r != nil && r.Failure == nil && r.Text != c.text {
				t.Errorf("text %q, want %q", r.Text, c.text)
			}
		})
	}
}

// TestReportContainsAgentStateChanges checks that the report contains the function's changes to the agent's
// state.
func TestReportContainsAgentStateChanges(t *testing.T) {
	state := json.RawMessage(`{"memory":{"blocks":[{"label":"human","value":"Bob"}]},"n":{"a":[{"b":1}]}}`)
	got := runDriver(t, brig.Python, tool.DriverRequest{State: state, Source: `
def f(agent_state):
    m = agent_state.memory
    m.update_block_value("human", m.get_block("human").value + "!")
    m.set_block({"label": "new", "value": "x"})
    agent_state.n.a[0].b += 1
    del agent_state["memory"]["blocks"][1]["value"]
    try: m.get_block("none")
    except KeyError as e: return str(e)
`}, nil)
	if r := got.first(); r == nil || string(r.State) != `{"memory": {"blocks": [{"label": "human", "value": "Bob!"}, {"label": "new"}]}, "n": {"a": [{"b": 2}]}}` ||
		!strings.Contains(string(r.Value), "available sections = human, new") {
		t.Errorf("%s %s", got.value(), got.stderr)
	}
	if got := runDriver(t, brig.Python, tool.DriverRequest{State: state, Source: "def f(agent_state):\n    agent_state.x = object()"}, nil); got.value() != "TypeError" {
		t.Errorf("a state that is no JSON: %s", got.value())
	}
}

func TestNodeDriverRunsTools(t *testing.T) {
	call := func(source string, args string, parameters ...string) callResult {
		return runDriver(t, brig.TypeScript, tool.DriverRequest{Name: "f", Source: source, Arguments: json.RawMessage(args), Parameters: parameters}, nil)
	}
	for _, c := range []struct{ name, source, args, want string }{
		{"in order", "export const f = (a, b) => [b, a]", `{"b":2,"a":1}`, "[2,1]"},
		{"not exported", "function f() { return 'x' }", `{}`, `"x"`},
		{"nothing", "function f() {}", `{}`, "null"},
		{"later", "async function f() { await new Promise((r) => setTimeout(r, 5)); return 7 }", `{}`, "7"},
		{"no function", "const f = 1", `{}`, "TypeError"},
		{"require", "function f() { return require('node:path').join('a', 'b') }", `{}`, `"a/b"`},
		{"a thrown string", "function f() { throw 'x' }", `{}`, "Error"},
		{"an error later", "function f() { setTimeout(() => { throw new RangeError('x') }); return new Promise(() => {}) }", `{}`, "RangeError"},
		{"its end", "function f() { process.exit(4) }", `{}`, "exit 4"},
		{"another JSON", "function f() { JSON.stringify = () => '1'; return 'right' }", `{}`, `"right"`},
		{"a big number", "function f() { return 10n }", `{}`, "TypeError"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := call(c.source, c.args, "a", "b"); got.value() != c.want {
				t.Errorf("%s, want %s: %s", got.value(), c.want, got.stderr)
			}
		})
	}
}
