package interpreter_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig/interpreter"
)

// interruptGrace is the time that the engine gives interrupted code to end. It must equal the
// engine's constant.
const interruptGrace = 5 * time.Second

// An interrupt ends a cell whose displays wait for acknowledgements that arrive late or never.
func TestInterruptEndsWaitingDisplay(t *testing.T) {
	ends := func(t *testing.T, d *driver, code string, late time.Duration) {
		begin := time.Now()
		d.send(interpreter.Request{Op: "cell", Code: code})
		d.readMessage()
		d.readMessage() // the started message, then the first display
		time.AfterFunc(300*time.Millisecond, d.interrupt)
		for n := 1; ; n++ {
			if n > 1 && late == 0 {
				d.unacknowledged = 0
			}
			if d.unacknowledged > 0 {
				time.Sleep(late)
			}
			m := d.readMessage()
			if m.Type == "error" && (m.Name != "KeyboardInterrupt" || time.Since(begin) > interruptGrace-time.Second) {
				t.Errorf("ended by %s after %v, want an interrupt within %v", m.Name, time.Since(begin), interruptGrace)
			}
			if m.Type == "end" {
				return
			}
		}
	}
	const python = "import time\nfor i in range(30): display(i)\ntime.sleep(60)"
	both := func(t *testing.T, start func(*testing.T) *driver, code string) {
		t.Parallel()
		for name, late := range map[string]time.Duration{"late": 700 * time.Millisecond, "never": 0} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ends(t, start(t), code, late)
			})
		}
	}
	runFlavors(t, func(t *testing.T, start func(*testing.T) *driver, _ string) { both(t, start, python) })
	t.Run("jupyter", func(t *testing.T) { both(t, startJupyter, python) })
	t.Run("node", func(t *testing.T) {
		both(t, startNode, "await new Promise((r) => setTimeout(r, 5)); for (let i = 0; i < 30; i++) display(i); await new Promise((r) => setTimeout(r, 60000))")
	})
	t.Run("node without await", func(t *testing.T) {
		both(t, startNode, "for (let i = 0; i < 30; i++) display(i); while (true);")
	})
}

// startJupyter starts the Jupyter driver with the kernel for Python.
func startJupyter(t *testing.T) *driver {
	t.Helper()
	skipWithoutModules(t, "ipykernel", "jupyter_client")
	list, err := exec.Command(python(t), driverFile(t, "jupyter.py"), "--list").Output()
	var kernels []struct {
		Name     string
		Language string
		Display  string `json:"display_name"`
	}
	if err != nil || json.Unmarshal(list, &kernels) != nil {
		t.Fatalf("--list: %v: %s", err, list)
	}
	name := ""
	for _, k := range kernels {
		if k.Language == "python" {
			name = k.Name
		}
	}
	if name == "" {
		t.Skip("no Jupyter kernel for Python is installed")
	}
	d := startDriver(t, []string{python(t), driverFile(t, "jupyter.py"), name}, nil)
	if m := d.awaitReady(); m.Flavor != "jupyter" {
		t.Errorf("ready: %+v", m)
	}
	return d
}

// Asyncio tasks of an earlier cell continue while acknowledgements and partial requests arrive
// between cells. A request that arrives while a thread's display waits is carried out.
func TestTasksContinueBetweenCells(t *testing.T) {
	const tasks = "import asyncio, threading, time\nasync def tick():\n    while True:\n        await asyncio.sleep(0.01)\n        print('tick')\n"
	runFlavors(t, func(t *testing.T, start func(*testing.T) *driver, _ string) {
		d := start(t)
		d.send(interpreter.Request{Op: "cell", Code: tasks + "task = asyncio.create_task(tick())\nthreading.Thread(target=display, args=(1,)).start(); time.sleep(1)"})
		d.readMessage()
		late := d.readMessage().Ack
		d.unacknowledged = 0
		d.write(interpreter.Request{Op: "ping", Nonce: "other"})
		d.readMessage()
		d.nonce = "other"
		if err := d.socket.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if line, err := d.messages.ReadString('\n'); !strings.Contains(line, "pong") {
			t.Fatalf("%q, %v, want the answer to the ping", line, err)
		}
		d.out.await(t, "tick")
		d.write(interpreter.Request{Op: "ack", Ack: late})
		ping := []byte(`{"op":"ping","nonce":"other"}` + "\n")
		for _, part := range [][]byte{ping[:9], ping[9:]} {
			time.Sleep(200 * time.Millisecond)
			d.out.take()
			d.out.await(t, "tick")
			if _, err := d.socket.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		if m := d.readMessage(); m.Type != "pong" {
			t.Errorf("%+v, want the answer to the second ping", m)
		}
	})
}

// A display in a forked child sends nothing and does not wait, even while a thread of the parent
// waits.
func TestDisplayInForkedChildSendsNothing(t *testing.T) {
	const code = `import os, signal, threading, time
threading.Thread(target=display, args=(1,)).start()
time.sleep(0.3)
pid = os.fork()
if pid == 0:
    signal.alarm(5)
    display(2)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))`
	runFlavors(t, func(t *testing.T, start func(*testing.T) *driver, _ string) {
		d := start(t)
		d.send(interpreter.Request{Op: "cell", Code: code})
		d.readMessage()
		d.readMessage()
		d.unacknowledged = 0
		if messages, out, _ := d.finish(); out != "7\n" || len(messages) != 1 {
			t.Errorf("the child ended with %q, and the parent sent %+v", out, messages)
		}
	})
}

// The driver does not import the program's own modules in place of the standard library.
func TestDisplayIgnoresProgramModules(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(*testing.T) *driver, _ string) {
		d := start(t)
		for _, name := range []string{"select", "__future__", "json", "linecache", "tokenize", "traceback"} {
			if err := os.WriteFile(filepath.Join(d.dir, name+".py"), []byte("print('mine')"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		messages, out, errout := d.runCell("display({'a': 1}); 1;")
		if out != "" || len(filterMessages(messages, "display")) != 1 || len(filterMessages(messages, "error")) != 0 || len(filterMessages(messages, "result")) != 0 {
			t.Errorf("%+v, printed %q\n%s", messages, out, errout)
		}
		messages, out, errout = d.runCell("1/0")
		if errs := filterMessages(messages, "error"); out != "" || len(errs) != 1 || !strings.Contains(errs[0].Traceback, "1/0") {
			t.Errorf("%+v, printed %q\n%s", messages, out, errout)
		}
	})
}

// A display with arbitrary metadata, a long ID or thousands of representations does not fail the
// cell, and the host accepts its message.
func TestDisplayAcceptsAnyMetadata(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(*testing.T) *driver, _ string) {
		d := start(t)
		d.runCell("class Odd:\n    def keys(self): raise OSError('no')\n    def __bool__(self): raise OSError('no')")
		for code, want := range map[string]string{
			"{1: 2, 'a': 1.5}":                             `{"1":2,"a":1.5}`,
			"{'a': float('nan')}":                          "null",
			"{'a': {i: i for i in range(9)}}":              `{"a":{"0":0,"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8}}`,
			"{str(i): i for i in range(5000)}":             "null",
			"{'a': object()}":                              "null",
			"{(1, 2): 3}":                                  "null",
			"Odd() if display.__module__[0] != 'I' else 1": "null",
		} {
			messages, _, errout := d.runCell("display({'text/plain': 'x'}, raw=True, metadata=" + code + ")")
			displays := filterMessages(messages, "display")
			if len(displays) != 1 {
				t.Errorf("%s: %+v\n%s", code, messages, errout)
			} else if got, _ := json.Marshal(displays[0].Metadata); string(got) != want {
				t.Errorf("%s: %s, want %s", code, got, want)
			}
		}
		messages, _, errout := d.runCell("display({'text/plain': 'x', 'text/' + 9000000 * 'x': 'y', **{'text/%d' % i: '' for i in range(5000)}}, raw=True, display_id=9000000 * 'x')")
		if displays := filterMessages(messages, "display"); len(displays) != 1 || representationOf(displays[0], "text/plain") != "x" || len(displays[0].Data) > 300 || len(displays[0].DisplayID) > 1024 {
			t.Errorf("many forms: %d displays\n%s", len(displays), errout)
		}
	})
	t.Run("node", func(t *testing.T) {
		messages, _, errout := startNode(t).runCell("const forms = {'text/plain': 'x'}; for (let i = 0; i < 5000; i++) forms['text/' + i] = ''; display.mime(forms)")
		if displays := filterMessages(messages, "display"); len(displays) != 1 || representationOf(displays[0], "text/plain") != "x" || len(displays[0].Data) > 300 {
			t.Errorf("many forms: %d displays\n%s", len(displays), errout)
		}
	})
	t.Run("jupyter", func(t *testing.T) {
		messages, _, errout := startJupyter(t).runCell("display({'text/plain': 'x', **{'text/%d' % i: '' for i in range(5000)}}, raw=True, metadata={str(i): i for i in range(5000)}, display_id=9000000 * 'x')\n" +
			"display({'text/plain': 'x'}, raw=True, metadata={'a': 70000 * 'x'}); display({'text/plain': 'x'}, raw=True, metadata={'a': 1})")
		displays := filterMessages(messages, "display")
		if len(displays) != 3 {
			t.Fatalf("%d displays: %+v\n%s", len(displays), filterMessages(messages, "error"), errout)
		}
		if representationOf(displays[0], "text/plain") != "x" || len(displays[0].Data) > 300 || len(displays[0].Metadata) > 0 || len(displays[0].DisplayID) > 1024 || len(displays[1].Metadata) > 0 || string(displays[2].Metadata["a"]) != "1" {
			t.Errorf("displayed %.1000s", fmt.Sprintf("%+v", displays))
		}
	})
}
