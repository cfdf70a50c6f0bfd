package interpreter_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig/interpreter"
)

// The driver reports the packages that a step installs with pip: to the host if the next step can
// use them, and on standard error otherwise.
func TestPythonReportsInstalledPackages(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		offline := map[string]string{"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
		for _, c := range []struct {
			name, code string
			uncarried  bool // whether the host carries no packages
			reported   []string
			stderr     string // expected substring
		}{
			{name: "a package", code: "!pip install -q pip", reported: []string{"pip"}},
			{name: "magic", code: "%pip install --quiet --no-input 'pip>=1'", reported: []string{"pip>=1"}},
			{name: "with a shell's help", code: "!true && pip install -q pip"},
			{name: "it fails", code: "!pip install -q --no-index brig-no-such-package"},
			{name: "an option", code: "!pip install -q --no-index pip", stderr: "only packages by their names"},
			{name: "a name that the code has not", code: "n = 'PI' + 'P'\n!pip install -q {n}", stderr: "that the code itself names"},
			{name: "not carried", code: "!pip install -q pip", uncarried: true, stderr: "brig: pip install -q pip is not carried to the next step: "},
		} {
			t.Run(c.name, func(t *testing.T) {
				messages, _, stderr := d.sendRequest(interpreter.Request{Op: "step", Code: c.code, Env: offline, Carried: !c.uncarried})
				var reported []string
				for _, m := range messages {
					if m.Type == "installed" {
						reported = append(reported, m.Packages...)
					}
				}
				if !slices.Equal(reported, c.reported) || !strings.Contains(stderr, c.stderr) || c.stderr == "" && strings.Contains(stderr, "carried") {
					t.Errorf("reported packages %q, stderr %s", reported, stderr)
				}
			})
		}
	})
}

// A cell can import packages that a shell command installed for the user after the interpreter
// had started. They take precedence over packages of the distribution with the same name.
func TestPythonImportsPackagesOfCommands(t *testing.T) {
	runFlavors(t, func(t *testing.T, _ func(t *testing.T) *driver, flavor string) {
		base := t.TempDir()
		path := t.TempDir()
		env := []string{"PYTHONUSERBASE=" + base, "PYTHONPATH=" + path}
		first := filepath.Join(path, "brigtestspace", "first.py")
		if err := errors.Join(os.Mkdir(filepath.Dir(first), 0o755), os.WriteFile(first, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if flavor == "cpython" {
			env = append(env, "BRIG_NO_IPYTHON=1")
		}
		d := startPython(t, env...)
		_, out, _ := d.runCell("import brigtestspace.first, site; print(site.getusersitepackages())")
		dir := strings.TrimSpace(out)
		if !strings.HasPrefix(dir, base) {
			t.Skipf("this Python has no packages of its user: %q", dir)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"brigtestlate.py": "late = 1\n", "pip.py": "late = 1\n",
			"brigtestspace/late.py":             "late = 2\n",
			"brigtestlate-7.dist-info/METADATA": "Metadata-Version: 2.1\nName: brigtestlate\nVersion: 7\n",
		} {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		for code, want := range map[string]string{
			"print(getattr(__builtins__, '__imp' + 'ort__')('brigtestlate').late)":   "1\n",
			"import brigtestlate, pip; print(brigtestlate.late, pip.late)":           "1 1\n",
			"import importlib.metadata as m; print(m.version('brigtestlate'))":       "7\n",
			"import importlib.util as u; print(u.find_spec('brigtestlate') is None)": "False\n",
		} {
			if _, out, errs := startPython(t, env...).runCell(code); out != want {
				t.Errorf("%s: %q %s", code, out, errs)
			}
		}
		// A package without __init__.py can have parts in several directories.
		if _, out, errs := d.runCell("import brigtestspace.late; print(brigtestspace.late.late)"); out != "2\n" {
			t.Errorf("%q %s", out, errs)
		}
	})
}

// The packages of a step have the lowest precedence in imports, including those of child
// programs. Their code runs only when they are imported.
func TestPythonStepPackagesAreImportedLast(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"brigtestgreet.py": "VERSION = 1\n", "json.py": "raise SystemExit('not the one')\n", "brig.pth": "import sys; sys.struck = True\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		const code = `import json, subprocess, sys, brigtestgreet
child = "import json, sys, brigtestgreet; print(brigtestgreet.VERSION, hasattr(sys, 'struck'))"
brigtestgreet.VERSION, hasattr(sys, 'struck'), subprocess.run([sys.executable, '-c', child], capture_output=True, text=True).stdout`
		messages, _, stderr := start(t).sendRequest(interpreter.Request{Op: "step", Code: code, Packages: []string{dir}})
		got := ""
		for _, m := range messages {
			if m.Type == "result" {
				got = representationOf(m, "text/plain")
			}
		}
		if got != `(1, False, '1 False\n')` {
			t.Errorf("%s %s", got, stderr)
		}
		_, _, stderr = start(t).sendRequest(interpreter.Request{Op: "step", Code: "1", Uncarried: "there is no index"})
		if !strings.Contains(stderr, "brig: packages were not carried into this step: there is no index") {
			t.Errorf("%s", stderr)
		}
	})
}
