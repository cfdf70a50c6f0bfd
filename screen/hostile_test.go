package screen_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/screen"
)

// hostileSources returns sources that could overload parsers and tree walkers. All
// end with a call of eval, which is found if the whole source is checked.
func hostileSources() map[string]string {
	n := 20_000
	return map[string]string{
		"brackets":        strings.Repeat("(", n) + strings.Repeat(")", n) + "\neval('1')",
		"open brackets":   strings.Repeat("[", n) + "\neval('1')",
		"members":         "a" + strings.Repeat(".b", n) + "\neval('1')",
		"calls":           "f" + strings.Repeat("()", n) + "\neval('1')",
		"sums":            "x = " + strings.Repeat("'a' + ", n) + "'b'\neval('1')",
		"not":             "x = " + strings.Repeat("-", n) + "1\neval('1')",
		"one long name":   strings.Repeat("a", 1<<20) + "\neval('1')",
		"one long string": "x = '" + strings.Repeat("a", 1<<20) + "'\neval('1')",
		"aliases":         aliases(n) + "eval('1')",
		"choices":         "x = " + choices(n) + "1\neval('1')",
		"quotes":          strings.Repeat("'", n|1) + "\neval('1')",
		"signs":           strings.Repeat("=+*&^%", n) + "\neval('1')",
	}
}

func choices(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "eval.a%d || ", i)
		if i%2 == 0 {
			fmt.Fprintf(&b, "eval.b%d && ", i)
		}
	}
	return b.String()
}

func aliases(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("a" + strings.Repeat("b", i%50) + " = a" + strings.Repeat("b", (i+1)%50) + "\n")
	}
	return b.String()
}

// The check of a hostile source ends, either with findings or with ErrTooLarge.
func TestCheckOfHostileSourceEnds(t *testing.T) {
	c := screen.Screener{Timeout: time.Second}
	for name, code := range hostileSources() {
		for _, lang := range []brig.Language{brig.Python, brig.JavaScript} {
			t.Run(string(lang)+" "+name, func(t *testing.T) {
				found, err := c.Check(t.Context(), lang, []byte(code), screen.Rules{Calls: []string{"eval"}})
				if err != nil && !errors.Is(err, screen.ErrTooLarge) {
					t.Fatal(err)
				}
				if err == nil && len(found) == 0 && name != "quotes" {
					t.Error("eval is not found")
				}
			})
		}
	}
}

// A source that exceeds the maximum size is rejected with ErrTooLarge.
func TestTooLargeSourceIsRejected(t *testing.T) {
	_, err := checker.Check(t.Context(), brig.Python, make([]byte, 5<<20), screen.Rules{})
	if err == nil {
		_, err = checker.Check(t.Context(), brig.Python, []byte(strings.Repeat("x\n", 5<<19)), screen.Rules{})
	}
	if !errors.Is(err, screen.ErrTooLarge) {
		t.Errorf("5 MiB of Python: %v", err)
	}
}

// If a chain of assignments is too long to be followed, the check reports a
// finding.
func TestLongChainIsFound(t *testing.T) {
	var b strings.Builder
	b.WriteString("def f(a0): a0('1')\n")
	for i := range 30 {
		b.WriteString("def f(): global " + name(i) + "; " + name(i) + " = " + name(i+1) + "\n")
	}
	b.WriteString(name(30) + " = eval\n")
	found, err := checker.Check(t.Context(), brig.Python, []byte(b.String()), screen.Rules{Calls: []string{"eval"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Rule == screen.DynamicRule {
			return
		}
	}
	t.Errorf("found %v", found)
}

func name(i int) string { return "a" + strings.Repeat("z", i) }

func TestUnsupportedLanguageIsRejected(t *testing.T) {
	for _, lang := range []brig.Language{brig.TypeScript, brig.Bash, "r", ""} {
		if _, err := checker.Check(t.Context(), lang, []byte("x"), screen.Rules{}); !errors.Is(err, screen.ErrLanguage) {
			t.Errorf("%q: %v", lang, err)
		}
	}
}

func TestCanceledCheckEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := checker.Check(ctx, brig.Python, []byte("eval('1')"), screen.PythonRules()); !errors.Is(err, context.Canceled) {
		t.Errorf("checked for a caller who has gone: %v", err)
	}
	// The next check is not affected.
	found, err := checker.Check(t.Context(), brig.Python, []byte("eval('1')"), screen.PythonRules())
	if err != nil || len(found) != 1 {
		t.Errorf("found %v, %v", found, err)
	}
}

// Concurrent checks do not affect each other.
func TestConcurrentChecksAreIndependent(t *testing.T) {
	var c screen.Screener
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			lang, code, want := brig.Python, "x = 1\nimport os", 1
			if i%2 == 0 {
				lang, code, want = brig.JavaScript, "eval('1'); require('fs')", 2
			}
			rules := map[brig.Language]screen.Rules{brig.Python: screen.PythonRules(), brig.JavaScript: screen.JavaScriptRules()}
			for range 5 {
				if found, err := c.Check(t.Context(), lang, []byte(code), rules[lang]); err != nil || len(found) != want {
					t.Errorf("%s: found %v, %v", lang, found, err)
				}
			}
		})
	}
	all.Wait()
}

// FuzzCheck checks that the check of every source has a result, and that the
// positions of findings are within the source.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{"import os", "f'{eval(x)!r:{y}}'", "require(`x${1}`)", "const {a: {b}} = globalThis", "%%bash\n\u2028!x", "match x:\n case a.b: pass"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, code string, js bool) {
		lang, rules := brig.Python, screen.PythonRules()
		if js {
			lang, rules = brig.JavaScript, screen.JavaScriptRules()
		}
		for _, rules.Only = range []bool{false, true} {
			found, err := checker.Check(t.Context(), lang, []byte(code), rules)
			if errors.Is(err, screen.ErrTooLarge) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Count(strings.ReplaceAll(code, "\r", "\n"), "\n") + 1
			for _, f := range found {
				if f.Line < 1 || f.Line > lines || f.Column < 1 || f.Message == "" || f.Rule == "" {
					t.Errorf("%q: %+v", code, f)
				}
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	code := []byte(strings.Repeat("def f(a, b):\n    return [x * 2 for x in range(a)] + [b]\nprint(f(1, 2))\n", 1))
	for _, n := range []int{1, 100} {
		b.Run(map[int]string{1: "small", 100: "large"}[n], func(b *testing.B) {
			src := []byte(strings.Repeat(string(code), n))
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				if _, err := checker.Check(b.Context(), brig.Python, src, screen.PythonRules()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
