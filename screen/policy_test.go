package screen_test

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/screen"
)

func TestPolicyBlocksForbiddenCode(t *testing.T) {
	var c screen.Screener
	s := &brig.Screening{Rules: map[brig.Language]screen.Rules{
		brig.Python: {Imports: []string{"os"}, Calls: []string{"eval"}}, brig.JavaScript: screen.JavaScriptRules(),
	}}
	for _, v := range []struct {
		lang       brig.Language
		code, want string
	}{
		{brig.Python, "print(1)", ""},
		{brig.Python, "import os\neval('1')", "Code is unsafe. Line 1: import of os is denied; Line 2: call of eval is denied"},
		{brig.Python, strings.Repeat("import os\n", 12), "; Line 10: import of os is denied; and 2 more"},
		{brig.Python, strings.Repeat("x = 1\n", 1<<20), "too large"},
		{brig.JavaScript, "require('fs')", "Code is unsafe. Line 1: import of fs is denied"},
		{brig.Bash, "ls", "bash is not screened"},
		{"jupyter:python3", "import os", "jupyter:python3 is not screened"},
	} {
		err := c.CheckPolicy(t.Context(), s, v.lang, v.code)
		if v.want == "" {
			if err != nil {
				t.Errorf("%.40q: %v", v.code, err)
			}
			continue
		}
		e := brig.AsError(err)
		if err == nil || e.Kind != brig.PolicyBlocked || e.Field != "code" || e.Hint == "" || !strings.Contains(e.Message, v.want) {
			t.Errorf("%.40q: %+v, want %q", v.code, e, v.want)
		}
	}
	s.Others = true
	if err := c.CheckPolicy(t.Context(), s, brig.Bash, "ls"); err != nil {
		t.Errorf("other languages may run, and bash: %v", err)
	}
}

// CheckPolicy applies the rules of each language, and rejects code in a language
// without rules unless Others is set.
func TestCheckPolicyAppliesRulesOfLanguage(t *testing.T) {
	var c screen.Screener
	s := &brig.Screening{Rules: map[brig.Language]brig.ScreenRules{
		brig.Python:     {Imports: []string{"socket"}, Calls: []string{"eval"}, Attributes: []string{"__class__"}},
		brig.JavaScript: {Only: true, Allow: []string{"path"}},
	}}
	for _, x := range []struct {
		lang   brig.Language
		source string
		ok     bool
	}{
		{brig.Python, "import os", true}, {brig.Python, "import socket", false}, {brig.Python, "eval('1')", false},
		{brig.Python, "().__class__", false}, {brig.Python, "!ls", false},
		{brig.JavaScript, "require('path')", true}, {brig.JavaScript, "require('fs')", false}, {brig.JavaScript, "let = = 1", false},
		{brig.Bash, "echo", false},
	} {
		if err := c.CheckPolicy(t.Context(), s, x.lang, x.source); (err == nil) != x.ok || err != nil && brig.KindOf(err) != brig.PolicyBlocked {
			t.Errorf("%s %q: %v", x.lang, x.source, err)
		}
	}
	s.Others = true
	if err := c.CheckPolicy(t.Context(), s, brig.Bash, "echo"); err != nil {
		t.Error(err)
	}
}
