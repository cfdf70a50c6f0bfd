package tool_test

import (
	"slices"
	"testing"

	"github.com/brig-run/brig/tool"
)

func TestPipRequirementsAreReadFromCell(t *testing.T) {
	for cell, want := range map[string][]string{
		"!pip install a b==1":                    {"a", "b==1"},
		"x = 1\n  %pip  install -q 'a >= 1'":     {"a >= 1"},
		"!pip install --user -U a a b":           {"a", "b"},
		"!pip install a\r\nx = 1":                {"a"},
		"!{sys.executable} -m pip install a":     {"a"},
		"!pip install -r requirements-dev.txt":   nil,
		"!pip install -c constraints.txt a":      nil,
		"!pip install -e mylib":                  nil,
		"!pip install --target lib a":            nil,
		"!pip install --index-url http://x a":    nil,
		"!pip install --extra-index-url=x a":     nil,
		"!pip install a > log.txt":               nil,
		"!pip install a && make done":            nil,
		"!pip install a # needs foo":             nil,
		"!pip install ./a":                       nil,
		"!pip install 'a @ http://x/y'":          nil,
		"pip3 install a":                         {"a"},
		"!python3 -m pip install \\\n  \"a[b]\"": {"a[b]"},
		"# !pip install a":                       nil,
		"print('pip install a')":                 nil,
		"!pip uninstall a":                       nil,
		"!pip installed a":                       nil,
		"":                                       nil,
	} {
		if got := tool.ParsePipRequirements(cell); !slices.Equal(got, want) {
			t.Errorf("%q asks for %q, want %q", cell, got, want)
		}
	}
}

func TestMergeReplacesSamePackage(t *testing.T) {
	list := []string{"a", "Some_Pkg==1"}
	for r, want := range map[string][]string{
		"b":                 {"a", "Some_Pkg==1", "b"},
		"some.pkg[x] >= 2":  {"a", "some.pkg[x] >= 2"},
		"a":                 {"a", "Some_Pkg==1"},
		"--index-url=x":     {"a", "Some_Pkg==1"},
		"./x.whl":           {"a", "Some_Pkg==1"},
		"x @ http://y/z.gz": {"a", "Some_Pkg==1"},
	} {
		if got := tool.MergeRequirement(list, r); !slices.Equal(got, want) {
			t.Errorf("with %q it is %q, want %q", r, got, want)
		}
	}
	var many []string
	for n := range 150 {
		many = tool.MergeRequirement(many, "p"+string(rune('a'+n%26))+string(rune('a'+n/26)))
	}
	if len(many) != 100 || !slices.Equal(list, []string{"a", "Some_Pkg==1"}) {
		t.Errorf("%d packages, %q", len(many), list)
	}
}
