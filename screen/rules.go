package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// Rules say what is not wanted in sources of one language.
type Rules = brig.ScreenRules

// The rules that a Finding may name.
const (
	ImportRule    = "import"    // a module
	CallRule      = "call"      // a function
	AttributeRule = "attribute" // a member
	DynamicRule   = "dynamic"   // what is named only at run time
	CommandRule   = "command"   // a command of IPython
	SyntaxRule    = "syntax"    // what cannot be parsed, where only the allowed may run
	EncodingRule  = "encoding"  // bytes that interpreters take for something else
)

// A Finding is one thing that the rules do not want.
type Finding struct {
	Line, Column int    // from 1; columns in characters
	Rule         string // which kind of rule
	Name         string // of what was found, as the rule knows it
	Message      string
}

// String is the finding on its line.
func (f Finding) String() string { return fmt.Sprintf("Line %d: %s", f.Line, f.Message) }

// minParts is how many parts of a path matter at least:
// process.mainModule.require is known without any rule.
const minParts = 4

// maxFindings is how many findings are told.
const maxFindings = 100

// PythonRules are the rules for Python of an operator who names none.
func PythonRules() Rules {
	return Rules{
		Imports: []string{
			"os", "subprocess", "sys", "shutil", "socket", "ctypes", "pickle", "threading", "multiprocessing",
			"asyncio", "http.client", "ftplib", "telnetlib", "builtins",
			"importlib", "runpy", "pty", "posix", "_posixsubprocess", "_ctypes", "_socket", "_pickle", "_thread", "code", "codeop",
		},
		Calls: []string{
			"eval", "exec", "open", "__import__", "compile", "input", "system", "popen", "remove", "rename", "rmdir",
			"chdir", "chmod", "chown", "getattr", "setattr", "globals", "locals", "shutil.rmtree", "subprocess.call",
			"subprocess.Popen", "ctypes", "pickle.load", "pickle.loads", "pickle.dump", "pickle.dumps",
			"execfile", "breakpoint", "get_ipython", "io.open", "io.FileIO", "codecs.open", "marshal.loads", "operator.attrgetter", "operator.methodcaller",
		},
		Attributes: []string{
			"__builtins__", "__globals__", "__subclasses__", "__loader__", "__spec__", "__code__", "__getattribute__", "__reduce__",
			"__reduce_ex__", "f_globals", "f_builtins", "f_locals", "gi_frame", "cr_frame", "tb_frame",
		},
	}
}

// JavaScriptRules are the rules for JavaScript, and for what TypeScript
// becomes, of an operator who names none.
func JavaScriptRules() Rules {
	return Rules{
		Imports: []string{"child_process", "fs", "worker_threads", "cluster", "inspector", "module", "process", "repl", "vm", "wasi"},
		Calls: []string{
			"eval", "Function", "process.binding", "process._linkedBinding", "process.dlopen", "process.getBuiltinModule",
			"process.mainModule", "require.cache", "module.constructor", "*.constructor",
		},
	}
}

// matcher is rules, made ready to be asked.
type matcher struct {
	Rules
	roots map[string]bool // first names of what calls and imports name
	attrs map[string]bool
	stars map[string]bool // members of anything
	calls map[string]bool
	write bool // open is denied but for reading
	parts int  // of the longest name that matters
}

func newMatcher(r Rules, always []string) *matcher {
	m := &matcher{Rules: r, roots: map[string]bool{}, attrs: map[string]bool{}, stars: map[string]bool{}, calls: map[string]bool{}, parts: minParts}
	for _, name := range slices.Concat(always, r.Imports, r.Calls) {
		m.roots[root(name)] = true
		m.parts = max(m.parts, strings.Count(name, ".")+2)
	}
	for _, name := range r.Attributes {
		m.attrs[name] = true
	}
	for _, name := range r.Calls {
		star, ofAny := strings.CutPrefix(name, "*.")
		switch {
		case name == "open(w)":
			m.write, m.roots["open"] = true, true
		case ofAny:
			m.stars[star] = true
		default:
			m.calls[name] = true
		}
	}
	return m
}

// cut shortens a path to as many parts as matter to any rule. So names that
// are given their own members, over and over, do not grow.
func (m *matcher) cut(path string) string {
	for i, n := 0, 0; i < len(path); i++ {
		if path[i] == '.' {
			if n++; n == m.parts {
				return path[:i]
			}
		}
	}
	return path
}

// root is the first name of a path.
func root(path string) string {
	path, _, _ = strings.Cut(path, ".")
	path, _, _ = strings.Cut(path, "/")
	return path
}

// denied finds the rule that does not want a function to be used.
func (m *matcher) denied(path string) (rule string, ok bool) {
	for at := path; ; {
		if m.calls[at] {
			return at, true
		}
		i := strings.LastIndexByte(at, '.')
		if i < 0 {
			break
		}
		at = at[:i]
	}
	if strings.HasPrefix(path, "*.") {
		return strings.TrimPrefix(path, "*."), true
	}
	return "", false
}

// imports says what is wrong with importing a module, if something is.
func (m *matcher) imports(module string) (message string, ok bool) {
	if m.Only {
		if slices.ContainsFunc(m.Allow, func(a string) bool { return within(module, a) }) {
			return "", false
		}
		return fmt.Sprintf("import of %s is not allowed", clip(module)), true
	}
	if slices.ContainsFunc(m.Imports, func(d string) bool { return within(module, d) }) {
		return fmt.Sprintf("import of %s is denied", clip(module)), true
	}
	return "", false
}

// within reports whether a module is another one, or in it.
func within(module, other string) bool {
	rest, ok := strings.CutPrefix(module, other)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '/')
}

// clip shortens what a source named.
func clip(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, brig.Clip(s, 80))
}

// order sorts findings by where they are and takes away what is told twice.
func order(all []Finding) []Finding {
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	seen := map[Finding]bool{}
	out := slices.DeleteFunc(all, func(f Finding) bool {
		f.Column = 0
		twice := seen[f]
		seen[f] = true
		return twice
	})
	return out[:min(len(out), maxFindings)]
}
