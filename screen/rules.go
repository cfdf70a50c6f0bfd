package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// Rules are the rules for sources of one language.
type Rules = brig.ScreenRules

// The kinds of rules in Finding.Rule.
const (
	ImportRule    = "import"    // a module
	CallRule      = "call"      // a function
	AttributeRule = "attribute" // a member
	DynamicRule   = "dynamic"   // a name that is known only at run time
	CommandRule   = "command"   // a command of IPython
	SyntaxRule    = "syntax"    // code that cannot be parsed
	EncodingRule  = "encoding"  // bytes that interpreters may decode differently
)

// Finding is a construct that the rules forbid.
type Finding struct {
	Line, Column int    // from 1; columns in characters
	Rule         string // the kind of rule
	Name         string // the name of the construct, as in the rule
	Message      string
}

// String returns the message with the line number.
func (f Finding) String() string { return fmt.Sprintf("Line %d: %s", f.Line, f.Message) }

// minParts is the minimum number of parts of a path that are kept, so that
// process.mainModule.require is recognized regardless of the rules.
const minParts = 4

// maxFindings is the maximum number of reported findings.
const maxFindings = 100

// PythonRules returns the default rules for Python.
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

// JavaScriptRules returns the default rules for JavaScript, including JavaScript
// that was compiled from TypeScript.
func JavaScriptRules() Rules {
	return Rules{
		Imports: []string{"child_process", "fs", "worker_threads", "cluster", "inspector", "module", "process", "repl", "vm", "wasi"},
		Calls: []string{
			"eval", "Function", "process.binding", "process._linkedBinding", "process.dlopen", "process.getBuiltinModule",
			"process.mainModule", "require.cache", "module.constructor", "*.constructor",
		},
	}
}

// matcher holds rules in a form that allows fast lookups.
type matcher struct {
	Rules
	roots         map[string]bool // the first parts of the names that are followed
	attrs         map[string]bool
	deniedMembers map[string]bool // members that are denied on any object
	calls         map[string]bool
	write         bool // whether open is allowed for reading only
	maxParts      int  // maximum number of parts of a path that are kept
}

func newMatcher(r Rules, always []string) *matcher {
	m := &matcher{Rules: r, roots: map[string]bool{}, attrs: map[string]bool{}, deniedMembers: map[string]bool{}, calls: map[string]bool{}, maxParts: minParts}
	for _, name := range slices.Concat(always, r.Imports, r.Calls) {
		m.roots[root(name)] = true
		m.maxParts = max(m.maxParts, strings.Count(name, ".")+2)
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
			m.deniedMembers[star] = true
		default:
			m.calls[name] = true
		}
	}
	return m
}

// truncatePath shortens a path to the number of parts that any rule can match, so that the
// path does not grow when a name is repeatedly assigned one of its own members.
func (m *matcher) truncatePath(path string) string {
	for i, n := 0, 0; i < len(path); i++ {
		if path[i] == '.' {
			if n++; n == m.maxParts {
				return path[:i]
			}
		}
	}
	return path
}

// root returns the first part of a path.
func root(path string) string {
	path, _, _ = strings.Cut(path, ".")
	path, _, _ = strings.Cut(path, "/")
	return path
}

// findDenied returns the rule that forbids the use of a function. ok is false if no
// rule forbids it.
func (m *matcher) findDenied(path string) (rule string, ok bool) {
	for prefix := path; ; {
		if m.calls[prefix] {
			return prefix, true
		}
		i := strings.LastIndexByte(prefix, '.')
		if i < 0 {
			break
		}
		prefix = prefix[:i]
	}
	if strings.HasPrefix(path, "*.") {
		return strings.TrimPrefix(path, "*."), true
	}
	return "", false
}

// findDeniedImport returns the message for a forbidden import. ok is false if the
// import is allowed.
func (m *matcher) findDeniedImport(module string) (message string, ok bool) {
	if m.Only {
		if slices.ContainsFunc(m.Allow, func(a string) bool { return isWithin(module, a) }) {
			return "", false
		}
		return fmt.Sprintf("import of %s is not allowed", clip(module)), true
	}
	if slices.ContainsFunc(m.Imports, func(d string) bool { return isWithin(module, d) }) {
		return fmt.Sprintf("import of %s is denied", clip(module)), true
	}
	return "", false
}

// isWithin reports whether module is the module other or one of its submodules.
func isWithin(module, other string) bool {
	rest, ok := strings.CutPrefix(module, other)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '/')
}

// clip shortens a name from the source and replaces its control characters, for a
// message.
func clip(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, brig.Clip(s, 80))
}

// sortFindings sorts findings by position, removes duplicates, and keeps at most
// maxFindings.
func sortFindings(all []Finding) []Finding {
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	seen := map[Finding]bool{}
	out := slices.DeleteFunc(all, func(f Finding) bool {
		f.Column = 0
		duplicate := seen[f]
		seen[f] = true
		return duplicate
	})
	return out[:min(len(out), maxFindings)]
}
