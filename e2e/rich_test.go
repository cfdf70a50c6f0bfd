package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/testenv"
)

// TestContextBehavesLikeNotebook verifies that a context behaves like a notebook, as agents' clients expect, in the
// image host and, at full size, in an image built from Debian packages.
//
//suite:part core
func TestContextBehavesLikeNotebook(t *testing.T) {
	needRoot(t)
	images := []string{brig.HostImage}
	var e *engine.Engine
	var ctx context.Context
	if testenv.IsFull() {
		// Building the image takes minutes.
		e, ctx = engineWithImage(t, "data", "python3-matplotlib", "python3-pandas", "python3-ipykernel")
		images = append(images, "data")
	} else {
		e, ctx = newEngine(t)
	}
	for _, image := range images {
		t.Run(image, func(t *testing.T) {
			name := "rich-" + image
			if _, err := e.Create(ctx, brig.Spec{Name: name, Image: image, TTL: 10 * time.Minute, Limits: brig.Limits{Memory: brig.GiB}}); err != nil {
				t.Fatal(err)
			}
			n := notebook{t: t, e: e, ctx: ctx, sandbox: name}
			n.figure()
			n.frame()
			n.exception()
			n.interrupt()
			n.contexts()
			n.restart()
			n.streams()
			n.order()
			if image == "data" {
				n.kernel()
			}
		})
	}
}

// engineWithImage returns an engine on real gVisor with an image that is built from Debian
// packages.
func engineWithImage(t *testing.T, name string, packages ...string) (*engine.Engine, context.Context) {
	t.Helper()
	e, ctx := engineWith(t, engine.Options{})
	if _, err := e.BuildImage(ctx, brig.ImageBuild{Name: name, Packages: packages}, nil); err != nil {
		t.Fatalf("build an image: %v", err)
	}
	return e, ctx
}

// notebook is one sandbox in which a test runs code.
type notebook struct {
	t       *testing.T
	e       *engine.Engine
	ctx     context.Context
	sandbox string
}

func (n notebook) run(code brig.Code) *brig.CodeResult {
	n.t.Helper()
	if code.Timeout == 0 {
		code.Timeout = 2 * time.Minute
	}
	r, err := n.e.RunCode(n.ctx, n.sandbox, code, nil)
	if err != nil {
		n.t.Fatalf("%s: %v", code.Source, err)
	}
	return r
}

func (n notebook) mustRun(source string) *brig.CodeResult {
	n.t.Helper()
	r := n.run(brig.Code{Source: source})
	if r.Error != nil {
		n.t.Fatalf("%s: %s", source, r.Error.Traceback)
	}
	return r
}

// text returns the representation of a value for a MIME type, which must be a string.
func (n notebook) text(r brig.Rich, mime string) string {
	n.t.Helper()
	var s string
	if err := json.Unmarshal(r.Data[mime], &s); err != nil {
		n.t.Fatalf("%s is %q: %v", mime, r.Data[mime], err)
	}
	return s
}

// figure verifies that a figure is returned automatically, as a valid image and
// as data points.
func (n notebook) figure() {
	n.t.Helper()
	r := n.mustRun("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 9], label='grow')\nplt.title('T'); plt.xlabel('time (s)');")
	if len(r.Outputs) != 1 {
		n.t.Fatalf("a figure gave %d outputs", len(r.Outputs))
	}
	raw, err := base64.StdEncoding.DecodeString(n.text(r.Outputs[0], "image/png"))
	if err != nil {
		n.t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(raw))
	if err != nil || img.Bounds().Dx() < 100 {
		n.t.Fatalf("the figure is no image: %v", err)
	}
	var chart struct {
		Type, Title, XUnit string
		X                  string `json:"x_unit"`
		Elements           []struct {
			Label  string
			Points [][]float64
		}
	}
	if err := json.Unmarshal(r.Outputs[0].Data["application/vnd.brig.chart+json"], &chart); err != nil {
		n.t.Fatalf("chart %s: %v", r.Outputs[0].Data["application/vnd.brig.chart+json"], err)
	}
	if chart.Type != "line" || chart.Title != "T" || chart.X != "s" || len(chart.Elements) != 1 || len(chart.Elements[0].Points) != 3 || chart.Elements[0].Points[2][1] != 9 {
		n.t.Errorf("the chart is %+v", chart)
	}
	if next := n.mustRun("1"); len(next.Outputs) != 1 || next.Outputs[0].Data["image/png"] != nil {
		n.t.Error("the figure is shown twice")
	}
}

func (n notebook) frame() {
	n.t.Helper()
	r := n.mustRun("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', None], 'c': pd.to_datetime(['2026-01-02', None])})")
	if len(r.Outputs) != 1 || !r.Outputs[0].Main {
		n.t.Fatalf("a frame gave %d outputs", len(r.Outputs))
	}
	if html := n.text(r.Outputs[0], "text/html"); !strings.Contains(html, "<table") {
		n.t.Errorf("the frame's HTML is %q", html)
	}
	if text := n.text(r.Outputs[0], "text/plain"); !strings.Contains(text, "a") {
		n.t.Errorf("the frame's text is %q", text)
	}
	var data map[string][]any
	if err := json.Unmarshal(r.Outputs[0].Data["application/vnd.brig.frame+json"], &data); err != nil {
		n.t.Fatalf("data: %v", err)
	}
	if len(data["a"]) != 2 || data["a"][1] != 2.0 || data["b"][1] != nil || !strings.HasPrefix(data["c"][0].(string), "2026-01-02") || data["c"][1] != nil {
		n.t.Errorf("the frame's data is %v", data)
	}
}

func (n notebook) exception() {
	n.t.Helper()
	r := n.run(brig.Code{Source: "def f(x):\n    return 1 / x\n\nf(0)"})
	if r.Error == nil || r.Error.Name != "ZeroDivisionError" || r.Error.Value != "division by zero" {
		n.t.Fatalf("error is %+v", r.Error)
	}
	for _, line := range []string{"return 1 / x", "f(0)", "ZeroDivisionError: division by zero"} {
		if !strings.Contains(r.Error.Traceback, line) {
			n.t.Errorf("the traceback does not show %q:\n%s", line, r.Error.Traceback)
		}
	}
	for _, ours := range []string{"/tmp/.brig", "\x1b["} {
		if strings.Contains(r.Error.Traceback, ours) {
			n.t.Errorf("the traceback shows %q:\n%s", ours, r.Error.Traceback)
		}
	}
}

// interrupt verifies that interrupted code ends with KeyboardInterrupt, and that the context
// keeps its variables. The cause is a timeout, a caller that disconnects, or another client.
func (n notebook) interrupt() {
	n.t.Helper()
	n.mustRun("kept = 7")
	for _, spin := range []string{"while True: pass", "import time\ntime.sleep(60)", "import subprocess\nsubprocess.run(['sleep', '60'])"} {
		r := n.run(brig.Code{Source: spin, Timeout: 500 * time.Millisecond})
		if !r.TimedOut || r.Error == nil || r.Error.Name != "KeyboardInterrupt" || r.Lost {
			n.t.Errorf("%s: %+v, %+v", spin, r, r.Error)
		}
	}
	ctx, cancel := context.WithTimeout(n.ctx, 500*time.Millisecond)
	defer cancel()
	if _, err := n.e.RunCode(ctx, n.sandbox, brig.Code{Source: "while True: pass"}, nil); err == nil {
		n.t.Error("code of a caller who is gone has a result")
	}
	time.AfterFunc(500*time.Millisecond, func() {
		if err := n.e.InterruptContext(n.ctx, n.sandbox, "default-python"); err != nil {
			n.t.Errorf("interrupt: %v", err)
		}
	})
	if r := n.run(brig.Code{Source: "import time\ntime.sleep(60)"}); r.Error == nil || r.Error.Name != "KeyboardInterrupt" {
		n.t.Errorf("interrupted code ended with %+v", r.Error)
	}
	begin := time.Now()
	if r := n.mustRun("print(kept)"); string(r.Stdout.Head) != "7\n" {
		n.t.Errorf("after interrupts the variable is %q", r.Stdout.Head)
	}
	if took := time.Since(begin); took > promptTimeout {
		n.t.Errorf("after an interrupt the context was busy for %v", took)
	}
}

// contexts verifies that two contexts run concurrently and do not share variables.
func (n notebook) contexts() {
	n.t.Helper()
	var wg sync.WaitGroup
	for _, who := range []string{"a", "b"} {
		c, err := n.e.CreateContext(n.ctx, n.sandbox, brig.ContextSpec{Language: brig.Python, Dir: "/tmp", Env: map[string]string{"WHO": who}})
		if err != nil {
			n.t.Fatal(err)
		}
		wg.Go(func() {
			for range 5 {
				r, err := n.e.RunCode(n.ctx, n.sandbox, brig.Code{Context: c.ID, Timeout: time.Minute,
					Source: "import os\ncount = globals().get('count', 0) + 1\nprint(os.environ['WHO'], count, os.getcwd())"}, nil)
				if err != nil || r.Error != nil {
					n.t.Errorf("%v %+v", err, r)
					return
				}
			}
			r, err := n.e.RunCode(n.ctx, n.sandbox, brig.Code{Context: c.ID, Source: "print(WHO if 'WHO' in globals() else os.environ['WHO'], count, os.getcwd())"}, nil)
			if want := who + " 5 /tmp\n"; err != nil || string(r.Stdout.Head) != want {
				n.t.Errorf("context %s: %v %q, want %q", who, err, r.Stdout.Head, want)
			}
		})
	}
	wg.Wait()
}

func (n notebook) restart() {
	n.t.Helper()
	n.mustRun("gone = 1")
	if _, err := n.e.RestartContext(n.ctx, n.sandbox, "default-python"); err != nil {
		n.t.Fatal(err)
	}
	if r := n.run(brig.Code{Source: "gone"}); r.Error == nil || r.Error.Name != "NameError" || r.Count != 1 {
		n.t.Errorf("after a restart: count %d, error %+v", r.Count, r.Error)
	}
}

// streams verifies that output arrives as soon as it is written, and in the correct order
// relative to displayed values.
func (n notebook) streams() {
	n.t.Helper()
	var seen []string
	var at []time.Time
	_, err := n.e.RunCode(n.ctx, n.sandbox, brig.Code{Timeout: time.Minute, Source: "import time, sys\nprint('one')\ntime.sleep(1.2)\ndisplay('two')\nprint('three', end='')\ntime.sleep(1.2)\n!echo four\n5"},
		func(e brig.CodeEvent) error {
			at = append(at, time.Now())
			switch {
			case e.Stdout != nil:
				seen = append(seen, string(e.Stdout))
			case e.Output != nil:
				seen = append(seen, "<"+n.text(*e.Output, "text/plain")+">")
			}
			return nil
		})
	if err != nil {
		n.t.Fatal(err)
	}
	if got := strings.Join(seen, ""); got != "one\n<'two'>threefour\n<5>" {
		n.t.Errorf("the order was %q", seen)
	}
	if spread := at[len(at)-1].Sub(at[0]); spread < 600*time.Millisecond {
		n.t.Errorf("everything came within %v", spread)
	}
}

// hasNode reports whether the sandbox's image has Node.js.
func (n notebook) hasNode() bool {
	n.t.Helper()
	r, err := n.e.Exec(n.ctx, n.sandbox, brig.Command{Shell: "command -v node"}, brig.IO{})
	if err != nil {
		n.t.Fatal(err)
	}
	return r.ExitCode == 0
}

// order verifies that rapid displays and output keep their order: in a new sandbox, in a pausable
// sandbox, and after a pause, when the agent forwards the interpreter's output.
func (n notebook) order() {
	n.t.Helper()
	const times = 20
	pausable := n
	pausable.sandbox += "-pausable"
	if _, err := n.e.Create(n.ctx, brig.Spec{Name: pausable.sandbox, TTL: 10 * time.Minute, Pausable: true}); err != nil {
		n.t.Fatal(err)
	}
	check := func(n notebook, when string) {
		for source, l := range map[string]brig.Language{
			"for i in range(20): print('p', i); display(i)":                     brig.Python,
			"for (let i = 0; i < 20; i++) { console.log('p', i); display(i); }": brig.JavaScript,
		} {
			if l == brig.JavaScript && !n.hasNode() {
				continue
			}
			for range times {
				var seen strings.Builder
				_, err := n.e.RunCode(n.ctx, n.sandbox, brig.Code{Timeout: time.Minute, Language: l, Source: source}, func(e brig.CodeEvent) error {
					if seen.Write(e.Stdout); e.Output != nil {
						fmt.Fprintf(&seen, "<%s>\n", n.text(*e.Output, "text/plain"))
					}
					return nil
				})
				if err != nil {
					n.t.Fatal(err)
				}
				var want strings.Builder
				for i := range 20 {
					fmt.Fprintf(&want, "p %d\n<%d>\n", i, i)
				}
				if seen.String() != want.String() {
					n.t.Fatalf("%s: the order of %s was\n%s", when, l, &seen)
				}
			}
		}
	}
	check(n, "new")
	check(pausable, "pausable")
	if _, err := n.e.Pause(n.ctx, pausable.sandbox, brig.PauseOptions{}); err != nil {
		n.t.Fatal(err)
	}
	check(pausable, "after a pause")
}

// kernel verifies that the languages of an image's Jupyter kernels are available.
func (n notebook) kernel() {
	n.t.Helper()
	c, err := n.e.CreateContext(n.ctx, n.sandbox, brig.ContextSpec{Language: "jupyter:python3"})
	if err != nil {
		n.t.Fatal(err)
	}
	if c.Flavor != "jupyter" {
		n.t.Errorf("the kernel's flavor is %q", c.Flavor)
	}
	r := n.run(brig.Code{Context: c.ID, Source: "x = 20\nprint('hi')\nx * 2"})
	if r.Error != nil || string(r.Stdout.Head) != "hi\n" || len(r.Outputs) != 1 || n.text(r.Outputs[0], "text/plain") != "40" {
		n.t.Errorf("%+v", r)
	}
	_, err = n.e.CreateContext(n.ctx, n.sandbox, brig.ContextSpec{Language: "fortran"})
	if apiErr := brig.AsError(err); apiErr.Kind != brig.InvalidArgument || apiErr.Field != "language" || !strings.Contains(apiErr.Message, "fortran") {
		n.t.Errorf("a language that is not there: %v", err)
	}
}
