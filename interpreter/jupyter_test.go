package interpreter_test

import (
	"testing"

	"github.com/brig-run/brig/interpreter"
)

// jupyterCells are cells that run in one kernel, in this order.
var jupyterCells = []cellCase{
	{name: "value", code: "1+1", result: "2"},
	{name: "state", code: "x = 5"},
	{name: "output", code: "import sys\nprint('é')\nprint('err', file=sys.stderr)\nx", stdout: "é\n", stderr: "err\n", result: "5"},
	{name: "child", code: "!echo hi", stdout: "~hi"},
	{name: "display", code: "display(1); 2", shown: []string{"1"}, result: "2"},
	{name: "display again", code: "h = display('0', display_id=True)\nfor i in range(2): h.update(i)", shown: []string{"'0'", "0", "1"}, updates: "011"},
	{name: "error", code: "1/0", error: "ZeroDivisionError", value: "division by zero", trace: "~1/0"},
	{name: "syntax", code: "a = )", error: "SyntaxError", value: "~", trace: "~a = )"},
	{name: "input", code: "input()", error: "StdinNotImplementedError", value: "~"},
}

func TestJupyterCellsReturnResults(t *testing.T) {
	d := startJupyter(t)
	d.errout.take() // a kernel may have written warnings during its start
	d.send(interpreter.Request{Op: "warm"})
	d.send(interpreter.Request{Op: "ping", Nonce: "n"})
	if m := d.readMessage(); m.Type != "pong" || m.Nonce != "n" {
		t.Errorf("ping: %+v", m)
	}
	for i, c := range jupyterCells {
		t.Run(c.name, func(t *testing.T) { c.check(t, d, i+1) })
	}
	d.t = t
	_, out, _ := d.sendRequest(interpreter.Request{Op: "cell", Env: map[string]string{"A": "'ä"}, Dir: "/usr", Code: "import os; print(os.environ['A'], os.getcwd())"})
	checkText(t, "in the cell", out, "'ä /usr\n")
	_, out, _ = d.runCell("print(os.environ.get('A'), os.getcwd())")
	checkText(t, "after it", out, "None /usr\n")
	d.interrupt() // no cell is running, so it is ignored
	d.send(interpreter.Request{Op: "cell", Code: "import time; print('go'); time.sleep(60)"})
	d.out.await(t, "go")
	d.interrupt()
	if messages, _, _ := d.finish(); filterMessages(messages, "error")[0].Name != "KeyboardInterrupt" {
		t.Errorf("interrupted: %+v", messages)
	}
	messages, _, _ := d.runCell("os._exit(3)")
	if errs := filterMessages(messages, "error"); len(errs) != 1 || errs[0].Name != "KernelDied" {
		t.Errorf("a kernel that died: %+v", messages)
	}
	if code := d.wait(); code == 0 {
		t.Error("ended with 0 after its kernel died")
	}
}
