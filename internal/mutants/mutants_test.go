package mutants

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const source = "package p\n\nfunc f(a, b int) bool {\n\treturn a <= b && a+1 < b\n}\n"

func TestParseReadsMutations(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "p"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "p", "f.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	list := `{"files":[{"file_name":"f.go","mutations":[
		{"type":"CONDITIONALS_BOUNDARY","line":4,"column":11},
		{"type":"CONDITIONALS_NEGATION","line":4,"column":11},
		{"type":"INVERT_LOGICAL","line":4,"column":16},
		{"type":"ARITHMETIC_BASE","line":4,"column":20},
		{"type":"ARITHMETIC_BASE","line":4,"column":20},
		{"type":"SOMETHING_NEW","line":4,"column":20}]}]}`
	got, err := Parse([]byte(list), root, "p")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, m := range got {
		words = append(words, m.String())
	}
	want := []string{"p/f.go:4:11 <= becomes <", "p/f.go:4:11 <= becomes >", "p/f.go:4:16 && becomes ||", "p/f.go:4:20 + becomes -"}
	if !slices.Equal(words, want) {
		t.Errorf("%q, want %q", words, want)
	}

	overlay, err := Overlay(root, t.TempDir(), []Mutant{got[0], got[2], got[3]})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(overlay)
	if err != nil {
		t.Fatal(err)
	}
	var o struct{ Replace map[string]string }
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	changed, err := os.ReadFile(o.Replace[filepath.Join(root, "p", "f.go")])
	if err != nil || !strings.Contains(string(changed), "return a < b || a-1 < b") {
		t.Errorf("%s, %v", changed, err)
	}

	for _, wrong := range []string{`{"type":"INVERT_LOGICAL","line":40,"column":1}`, `{"type":"INVERT_LOGICAL","line":4,"column":100}`} {
		if _, err := Parse([]byte(`{"files":[{"file_name":"f.go","mutations":[`+wrong+`]}]}`), root, "p"); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// TestApplyRejectsChangedSource checks that apply rejects a source that has changed
// in the meantime.
func TestApplyRejectsChangedSource(t *testing.T) {
	m := Mutant{File: "p/f.go", Line: 4, Column: 11, Source: "\treturn a <= b && a+1 < b", From: "<=", To: "<"}
	if _, err := apply([]byte(source), []Mutant{m}); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"// new\n" + source, strings.Replace(source, "a+1", "a+2", 1)} {
		if _, err := apply([]byte(other), []Mutant{m}); err == nil {
			t.Errorf("it is applied to %s", other)
		}
	}
}

func TestSampleIsDeterministic(t *testing.T) {
	var all []Mutant
	for i := range 100 {
		all = append(all, Mutant{File: "p/f.go", Line: i + 1, Column: 1, Source: strings.Repeat("x", i)})
	}
	a, b, c := Sample(all, 10, 1), Sample(all, 10, 1), Sample(all, 10, 2)
	if !slices.Equal(a, b) || slices.Equal(a, c) || len(a) != 10 || len(Sample(all, 1000, 1)) != 100 {
		t.Errorf("%v, %v, %v", a, b, c)
	}
	if !slices.IsSortedFunc(a, compare) {
		t.Errorf("not in order: %v", a)
	}
}
