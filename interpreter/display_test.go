package interpreter_test

import (
	"encoding/json"
	"os/exec"
	"testing"
	"time"

	"github.com/brig-run/brig/interpreter"
)

// interruptGrace is how long the engine waits for interrupted code, as in the engine.
const interruptGrace = 5 * time.Second

// An interrupt ends a cell whose displays wait for the host: they are acknowledged late, or
// not any more.
func TestInterruptOfDisplays(t *testing.T) {
	ends := func(t *testing.T, d *driver, code string, late time.Duration) {
		begin := time.Now()
		d.send(interpreter.Order{Op: "cell", Code: code})
		d.next()
		d.next() // of started, and the first display
		time.AfterFunc(300*time.Millisecond, d.interrupt)
		for n := 1; ; n++ {
			if n > 1 && late == 0 {
				d.owed = 0
			}
			if d.owed > 0 {
				time.Sleep(late)
			}
			m := d.next()
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
	flavors(t, func(t *testing.T, start func(*testing.T) *driver, _ string) { both(t, start, python) })
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
	needs(t, "ipykernel", "jupyter_client")
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
	if m := d.ready(); m.Flavor != "jupyter" {
		t.Errorf("ready: %+v", m)
	}
	return d
}
