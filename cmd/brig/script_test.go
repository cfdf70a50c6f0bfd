package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// TestScriptsPass runs the built binary as users do. Each script has its own data
// folder.
func TestScriptsPass(t *testing.T) {
	bin := filepath.Dir(testenv.Bin(t, "brig"))
	// If scripts shared a data folder, they would wait for each other. They share one image store,
	// so that the image is created only once.
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			data := filepath.Join(e.WorkDir, "data")
			e.Setenv("PATH", bin+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
			e.Setenv("BRIG_DATA_DIR", data)
			e.Setenv("HOME", e.WorkDir)
			e.Defer(func() { removeLeftovers(t, filepath.Join(bin, "brig"), data) })
			return nil
		},
	})
}

// removeLeftovers removes sandboxes that a failed script may have left.
func removeLeftovers(t *testing.T, brig, data string) {
	out, err := exec.Command(brig, "--data-dir", data, "sandbox", "ls", "--json").Output()
	if err != nil {
		return
	}
	for _, line := range strings.Split(string(out), "\n") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), `"name": "`); ok {
			name = strings.TrimSuffix(strings.TrimSuffix(name, ","), `"`)
			t.Logf("a script left sandbox %s", name)
			_ = exec.Command(brig, "--data-dir", data, "sandbox", "rm", name).Run()
		}
	}
}

// TestAnnotatedConfigContainsDefaults checks that the annotated file contains every field with
// its default.
func TestAnnotatedConfigContainsDefaults(t *testing.T) {
	c := &cli{configFile: "brig.yaml"}
	cfg, err := c.loadConfig()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.limitRange() != brig.DefaultLimitRange() {
		t.Errorf("brig.yaml says %+v, the defaults are %+v", cfg.limitRange(), brig.DefaultLimitRange())
	}
	if cfg.Listen != defaultListen {
		t.Errorf("brig.yaml listens on %s", cfg.Listen)
	}
	var all map[string]any
	b, err := os.ReadFile("brig.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"listen", "hosts", "limits", "lease", "timeout", "screening", "keep"} {
		if _, ok := all[field]; !ok {
			t.Errorf("brig.yaml does not show %s", field)
		}
	}
}

// TestAPIReferenceMatchesCode checks that docs/openapi.json, which `make docs` generates,
// matches the code.
func TestAPIReferenceMatchesCode(t *testing.T) {
	var out bytes.Buffer
	if code := execute([]string{"openapi"}, strings.NewReader(""), &out, io.Discard); code != 0 {
		t.Fatalf("brig openapi exits with %d", code)
	}
	b, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := errors.Join(json.Unmarshal(out.Bytes(), &got), json.Unmarshal(b, &want)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("docs/openapi.json is old: run `make docs`")
	}
}
