package find_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/brig-run/brig/internal/attack/find"
)

// TestFindReturnsAttackTests checks that Tests finds tests that record attacks through
// functions, variables and other packages, and no other tests, regardless of
// their names.
func TestFindReturnsAttackTests(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                    "module example.test/m\n\ngo 1.25\n",
		"internal/attack/attack.go": "package attack\n\nfunc Tried() {}\n",
		"internal/attack/x_test.go": "package attack_test\n\nimport (\n\t\"testing\"\n\n\t\"example.test/m/internal/attack\"\n)\n\nfunc TestBook(*testing.T) { attack.Tried() }\n",
		"one/one.go":                "package one\n",
		"one/one_test.go": `package one_test

import (
	"testing"

	"example.test/m/internal/attack"
)

type h struct{}

func (h) through() { deeper() }
func deeper()      { attack.Tried() }

type harmless struct{}

func (harmless) through() {}

var table = []func(){deeper}

func TestDirect(*testing.T)  { attack.Tried() }
func TestThrough(*testing.T) { h{}.through() }
func TestTable(*testing.T)   { table[0]() }

func TestSameName(*testing.T) {
	harmless{}.through()
	deeper := func() {}
	deeper()
}
`,
		"suite/suite.go":      "package suite\n\nimport \"example.test/m/internal/attack\"\n\nfunc Run() { attack.Tried() }\nfunc Other() {}\nfunc TestNoTest() { attack.Tried() }\n",
		"two/two_test.go":     "package two\n\nimport (\n\t\"testing\"\n\n\t\"example.test/m/suite\"\n)\n\nfunc TestSuite(*testing.T) { suite.Run() }\nfunc TestOther(*testing.T) { suite.Other() }\n",
		"testdata/no_test.go": "package no\nfunc TestX(t *T) { attack.Tried() }\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := find.Tests(root)
	want := map[string][]string{"one": {"TestDirect", "TestTable", "TestThrough"}, "two": {"TestSuite"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}
