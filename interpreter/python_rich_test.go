package interpreter_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/brig-run/brig/interpreter"
)

// charts are cells that draw charts, and the expected data of the charts.
var charts = []struct{ name, code, want string }{
	{"line", "plt.plot([1, 2], [3, float('nan')], label='a'); plt.xlabel('Time (s)'); plt.ylabel('L [m]'); plt.title('T')", `{"type":"line","title":"T","x_label":"Time (s)","x_unit":"s","y_unit":"m","x_scale":"linear","elements":[{"label":"a","points":[[1,3],[2,null]]}]}`},
	{"unlabelled", "plt.plot([1]); plt.plot([2]); plt.yscale('log')", `{"type":"line","title":null,"x_label":null,"y_scale":"log","elements":[{"label":"Line 0","points":[[0,1]]},{"label":"Line 1","points":[[0,2]]}]}`},
	{"categories", "plt.plot(['a', 'b'], [1, 2])", `{"x_scale":"categorical","x_ticks":[0,1],"x_tick_labels":["a","b"],"elements":[{"label":"Line 0","points":[["a",1],["b",2]]}]}`},
	{"dates", "import datetime\nplt.plot([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)], [1, 2])", `{"x_scale":"datetime","elements":[{"label":"Line 0","points":[["2024-01-01",1],["2024-01-02",2]]}]}`},
	{"scatter", "plt.scatter([1, 2], [3, 4], label='s'); plt.axhline(3)", `{"type":"scatter","elements":[{"label":"s","points":[[1,3],[2,4]]}]}`},
	{"bar", "plt.bar(['a', 'b'], [1, 2]); plt.xlabel('X')", `{"type":"bar","x_label":"X","elements":[{"label":"a","group":"Group 0","value":1},{"label":"b","group":"Group 0","value":2}]}`},
	{"groups", "plt.bar([0, 1], [1, 2], width=.4, label='p'); plt.bar([.4, 1.4], [3, 4], width=.4, label='q'); plt.xticks([0, 1], ['a', 'b'])", `{"type":"bar","elements":[{"label":"a","group":"p","value":1},{"label":"b","group":"p","value":2},{"label":"a","group":"q","value":3},{"label":"b","group":"q","value":4}]}`},
	{"lying bars", "plt.barh(['a'], [5]); plt.xlabel('L [m]')", `{"type":"bar","x_label":null,"y_label":"L [m]","y_unit":"m","elements":[{"label":"a","group":"Group 0","value":5}]}`},
	{"pie", "plt.pie([1, 3], labels=['a', 'b'])", `{"type":"pie","elements":[{"label":"a","angle":90,"radius":1},{"label":"b","angle":270,"radius":1}]}`},
	{"boxes", "b = plt.boxplot([[1, 2, 3, 4, 50]], patch_artist=True); plt.xticks([1], ['A'])", `{"type":"box_and_whisker","elements":[{"label":"A","min":1,"first_quartile":2,"median":3,"third_quartile":4,"max":4,"outliers":[50]}]}`},
	{"lying boxes", "b = plt.boxplot([[1, 2, 3, 4, 50], [2, 3, 4, 5, 6]], patch_artist=True, vert=False); plt.yticks([1, 2], ['A', 'B']); plt.ylabel('Y')", `{"x_label":"Y","y_label":null,"elements":[{"label":"A","min":1,"first_quartile":2,"median":3,"third_quartile":4,"max":4,"outliers":[50]},{"label":"B","min":2,"first_quartile":3,"median":4,"third_quartile":5,"max":6,"outliers":[]}]}`},
	{"several", "f, a = plt.subplots(1, 2); f.suptitle('S'); a[0].plot([1], label='l'); a[1].scatter([1], [2], label='s')", `{"type":"superchart","title":"S"}`},
	{"picture", "plt.imshow([[1, 2]])", `{"type":"unknown","title":null,"elements":[]}`},
	{"blank", "plt.subplots()", `{}`},
}

func TestPythonChartsAreDisplayed(t *testing.T) {
	skipWithoutModules(t, "matplotlib")
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		if messages, _, stderr := d.runCell("import matplotlib.pyplot as plt"); len(messages) != 2 {
			t.Fatalf("%+v\n%s", messages, stderr)
		}
		for _, c := range charts {
			t.Run(c.name, func(t *testing.T) {
				messages, _, stderr := d.runCell(c.code + ";\nNone")
				displays := filterMessages(messages, "display")
				if len(displays) != 1 || !strings.HasPrefix(representationOf(displays[0], "image/png"), "iVBORw0KGgo") || !strings.Contains(representationOf(displays[0], "text/plain"), "<Figure size") {
					t.Fatalf("%+v\n%s", messages, stderr)
				}
				var got, want map[string]json.RawMessage
				if err := json.Unmarshal(displays[0].Data[interpreter.TypeChart], &got); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal([]byte(c.want), &want); err != nil {
					t.Fatal(err)
				}
				for key, value := range want {
					if canonical(got[key]) != canonical(value) {
						t.Errorf("%s: %s, want %s", key, canonical(got[key]), canonical(value))
					}
				}
			})
		}
	})
}

// canonical returns the canonical form of a JSON value, so that equal values have equal texts.
func canonical(text json.RawMessage) string {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return string(text)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// A display includes its metadata, except metadata that is not valid JSON. A request to clear the
// output is sent to the host.
func TestPythonDisplayOmitsInvalidMetadata(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, flavor string) {
		d := start(t)
		messages, _, stderr := d.runCell("from IPython.display import clear_output\nfor about in ({'text/plain': {'w': 1}}, {'x': object()}):\n    display({'text/plain': 'x'}, raw=True, metadata=about)\nclear_output(wait=True)")
		displays, cleared := filterMessages(messages, "display"), filterMessages(messages, "clear")
		if len(displays) != 2 || canonical(displays[0].Metadata["text/plain"]) != `{"w":1}` || len(displays[1].Metadata) > 0 {
			t.Errorf("%+v\n%s", displays, stderr)
		}
		if flavor == "ipython" && (len(cleared) != 1 || !cleared[0].Wait) {
			t.Errorf("%+v", messages)
		}
	})
}

// Each figure is displayed once, on request or at the end of the cell.
func TestPythonFiguresAreDisplayedOnce(t *testing.T) {
	skipWithoutModules(t, "matplotlib")
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		d.send(interpreter.Request{Op: "cell", Code: "import matplotlib.pyplot as plt\nplt.plot([1]); plt.show()\nprint('shown')\nplt.plot([2]); plt.figure(); plt.plot([3])\n1/0"})
		for _, kind := range []string{"started", "display", "display", "display", "error", "end"} {
			if m := d.readMessage(); m.Type != kind {
				t.Fatalf("got message %s, want %s", m.Type, kind)
			}
		}
		checkText(t, "stdout", d.out.take(), "shown\n")
		messages, _, _ := d.runCell("figure, axes = plt.subplots(); axes.plot([1]); figure")
		if len(messages) != 3 || representationOf(messages[1], "image/png") == "" || messages[1].Type != "result" {
			t.Errorf("a figure as result: %+v", messages)
		}
		messages, _, _ = d.runCell("1")
		if len(messages) != 3 {
			t.Errorf("was shown again: %+v", messages)
		}
	})
}

func TestPythonFramesAreDisplayedAsData(t *testing.T) {
	skipWithoutModules(t, "pandas")
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		messages, _, _ := d.runCell("import pandas as pd, numpy as np, datetime\npd.DataFrame({'a': [1.5, np.nan], 't': pd.to_datetime(['2024-01-02', None]), 's': ['x', None], 1: [np.int64(3), {'k': (1, np.inf)}], 'd': [datetime.date(2024, 1, 1), object]})")
		results := filterMessages(messages, "result")
		if len(results) != 1 {
			t.Fatalf("%+v", messages)
		}
		want := `{"1":[3,{"k":[1,null]}],"a":[1.5,null],"d":["2024-01-01","\u003cclass 'object'\u003e"],"s":["x",null],"t":["2024-01-02T00:00:00",null]}`
		if got := canonical(results[0].Data[interpreter.TypeFrame]); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		checkText(t, "html", representationOf(results[0], "text/html"), "~<table")
		checkText(t, "text", representationOf(results[0], "text/plain"), "~2024-01-02")
		messages, _, _ = d.runCell("pd.Series([1, 2], name='n')")
		if got := canonical(filterMessages(messages, "result")[0].Data[interpreter.TypeFrame]); got != `{"n":[1,2]}` {
			t.Errorf("a series: %s", got)
		}
	})
}

func TestPythonImagesAreDisplayed(t *testing.T) {
	skipWithoutModules(t, "PIL")
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		messages, _, _ := d.runCell("from PIL import Image\ni = Image.new('RGB', (2, 2))\ni.show()\ni")
		if len(messages) != 4 || representationOf(messages[1], "image/png") == "" || representationOf(messages[2], "image/png") == "" {
			t.Errorf("%+v", messages)
		}
	})
}

// An image that is saved to a file is displayed only in E2B's mode. Each way to
// show an image displays it once.
func TestPythonSavedImagesAreDisplayedForE2B(t *testing.T) {
	skipWithoutModules(t, "PIL")
	const cell = "import io, os, pathlib, tempfile\nfrom PIL import Image, ImageShow\ni = Image.new('RGB', (2, 2))\nd = tempfile.mkdtemp()\n"
	for _, flavor := range [][]string{{"BRIG_NO_IPYTHON=1"}, nil} {
		if flavor == nil {
			skipWithoutModules(t, "IPython")
		}
		for _, c := range []struct {
			code            string
			env             []string
			displays, wrote int
		}{
			{"i.save(d + '/x.png')", []string{"E2B_SANDBOX_ID=x"}, 1, 1},
			{"i.save(d + '/x.jpg', 'JPEG', quality=5)", []string{"E2B_SANDBOX_ID=x"}, 1, 1},
			{"i.save(pathlib.Path(d, 'x.png'))", []string{"E2B_SANDBOX_ID=x"}, 0, 1},
			{"i.save(io.BytesIO(), 'PNG')", []string{"E2B_SANDBOX_ID=x"}, 0, 0},
			{"try:\n    i.save(d + '/none/x.png')\nexcept OSError:\n    pass", []string{"E2B_SANDBOX_ID=x"}, 1, 0},
			{"i.save(d + '/x.png')", nil, 0, 1},
			{"i.show()", nil, 1, 0},
			{"ImageShow.show(i)", nil, 1, 0},
			{"ImageShow.UnixViewer().show(i)", []string{"E2B_SANDBOX_ID=x"}, 1, 0},
		} {
			d := startPython(t, append(c.env, flavor...)...)
			messages, stdout, stderr := d.runCell(cell + c.code + "\nprint(len(os.listdir(d)))")
			displays := filterMessages(messages, "display")
			if len(displays) != c.displays || len(displays) > 0 && !strings.HasPrefix(representationOf(displays[0], "image/png"), "iVBORw0KGgo") || strings.TrimSpace(stdout) != strconv.Itoa(c.wrote) {
				t.Errorf("%s with %v: %d displays, %s files, want %d and %d\n%s", c.code, c.env, len(displays), stdout, c.displays, c.wrote, stderr)
			}
		}
	}
}

// A cell continues after a display only when the host has acknowledged the display. The host can
// therefore separate the output before the display from the output after it. Interrupts, late
// acknowledgements and requests that arrive in between are harmless.
func TestDisplayWaitsForAcknowledgement(t *testing.T) {
	const python, node = "for i in range(4): print('p', i); display(i)", "for (let i = 0; i < 4; i++) { console.log('p', i); display(i); }"
	waits := func(t *testing.T, d *driver, code string) {
		d.send(interpreter.Request{Op: "cell", Code: code})
		for i := -1; i < 4; i++ {
			m := d.readMessage()
			if i < 0 {
				continue
			}
			if out, want := d.out.take(), fmt.Sprintf("p %d\n", i); m.Type != "display" || out != want {
				t.Errorf("%+v after %q, want a display after %q", m, out, want)
			}
		}
		d.finish()
		d.write(interpreter.Request{Op: "ack", Ack: 1}) // late
		d.send(interpreter.Request{Op: "cell", Code: code})
		d.readMessage()
		d.readMessage()
		d.unacknowledged = 0 // not acknowledged
		d.write(interpreter.Request{Op: "ping", Nonce: "other"})
		for d.readMessage().Type != "end" {
			d.unacknowledged = 0
			d.write(interpreter.Request{Op: "ack", Ack: 1})
		}
		d.nonce = "other"
		if m := d.readMessage(); m.Type != "pong" {
			t.Errorf("%+v, want the answer to the ping", m)
		}
	}
	runFlavors(t, func(t *testing.T, start func(*testing.T) *driver, _ string) {
		d := start(t)
		waits(t, d, python)
		d.send(interpreter.Request{Op: "cell", Code: "display(1)"})
		d.readMessage()
		d.readMessage()
		d.unacknowledged = 0
		d.interrupt()
		if messages, _, _ := d.finish(); len(filterMessages(messages, "error")) != 1 {
			t.Errorf("a display that waits was interrupted: %+v", messages)
		}
		d.write(interpreter.Request{Op: "ack", Ack: 1})
		if _, out, _ := d.runCell("print(1)"); out != "1\n" {
			t.Errorf("the next cell printed %q", out)
		}
	})
	t.Run("node", func(t *testing.T) { waits(t, startNode(t), node) })
}
