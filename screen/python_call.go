package screen

import (
	"slices"
	"strings"
)

// callArgs are the arguments of a call.
type callArgs struct {
	positional []int32          // by position
	names      map[string]int32 // by name
	more       bool             // whether further arguments are known only at run time
}

func (g pythonGrammar) args(s *scan, i int32) callArgs {
	a := callArgs{names: map[string]int32{}}
	for c := range s.namedChildren(s.child(i, "arguments")) {
		switch s.kind(c) {
		case "keyword_argument":
			if name := s.child(c, "name"); name >= 0 {
				a.names[g.ident(s, name)] = s.child(c, "value")
			}
		case "list_splat", "dictionary_splat":
			a.more = true
		default:
			a.positional = append(a.positional, c)
		}
	}
	return a
}

// get returns the argument with a name or at a position, or -1 if there is none.
func (a callArgs) get(position int, name string) int32 {
	if at, ok := a.names[name]; ok {
		return at
	}
	if position < len(a.positional) {
		return a.positional[position]
	}
	return -1
}

func (g pythonGrammar) visitCall(s *scan, i int32) {
	function := s.child(i, "function")
	if function < 0 {
		return
	}
	v := s.value(function)
	s.checkUse(function, v, true)
	method, of := "", value{}
	if s.kind(function) == "attribute" {
		if at := s.child(function, "attribute"); at >= 0 {
			method, of = g.ident(s, at), s.value(s.child(function, "object"))
		}
	}
	if len(v.paths) == 0 && method == "" {
		return
	}
	a := g.args(s, i)
	var out []path
	for _, p := range v.paths {
		out = join(out, g.resultOf(s, i, p, a))
	}
	switch method {
	case "load_module", "import_module", "find_spec", "find_module":
		if len(out) == 0 && s.value(a.get(0, "name")).known {
			out = s.checkImportOf(i, s.value(a.get(0, "name")), rootModule)
		}
	case "get", "pop", "setdefault", "__getitem__", "__getattribute__":
		if slices.ContainsFunc(of.paths, func(p path) bool { return isPythonNamespace(p.name) || method[0] == '_' }) {
			out = join(out, s.lookup(i, of, s.value(a.get(0, "key")), isPythonNamespace))
			g.checkModules(s, i, value{paths: out})
		}
	}
	s.set(i, value{paths: out})
	g.checkName(s, i)
}

// resultOf returns the possible results of a call of the function p.
func (g pythonGrammar) resultOf(s *scan, i int32, p path, a callArgs) []path {
	switch {
	case isPythonImporter(p.name):
		return s.checkImportOf(i, s.value(a.get(0, "name")), func(name string) string {
			if p.name == "__import__" && a.get(3, "fromlist") < 0 {
				s.checkImport(i, name)
				return root(name)
			}
			return rootModule(name)
		})
	case p.name == "getattr", p.name == "setattr", p.name == "delattr":
		every := func(string) bool { return true }
		return s.lookup(i, s.value(a.get(0, "")), s.value(a.get(1, "")), every)
	case p.name == "globals", p.name == "locals", p.name == "vars" && len(a.positional) == 0:
		return []path{{name: "builtins", soft: p.soft}}
	case p.name == "vars":
		return s.member(s.value(a.positional[0]), "__dict__")
	case p.name == "open" && s.m.write:
		g.checkOpen(s, i, a)
	}
	return nil
}

// rootModule returns the name of the module in the argument of an importing
// function.
func rootModule(name string) string {
	name, _, _ = strings.Cut(name, ":") // pkgutil's syntax for an attribute of a module
	return name
}

// checkOpen reports a call of open that may open a file for writing.
func (g pythonGrammar) checkOpen(s *scan, i int32, a callArgs) {
	mode := a.get(1, "mode")
	switch v := s.value(mode); {
	case a.more, mode >= 0 && !v.known:
		s.find(i, DynamicRule, "open(w)", "open in a mode that is made at run time")
	case strings.ContainsAny(v.text, "wax+"):
		s.find(i, CallRule, "open(w)", "open for writing is denied")
	}
}

// recordString records the value of a Python string if it is constant.
func (g pythonGrammar) recordString(s *scan, i int32) {
	start, end := s.nodes[i].start, s.nodes[i].end
	var b strings.Builder
	prefix := ""
	for c := range s.namedChildren(i) {
		switch s.kind(c) {
		case "string_start":
			prefix = strings.ToLower(strings.TrimRight(s.text(c), `"'`))
			start = s.nodes[c].end
		case "string_end":
			end = s.nodes[c].start
		case "interpolation":
			v := s.value(c)
			if !v.known {
				return
			}
			b.WriteString(g.content(string(s.source[start:s.nodes[c].start]), prefix))
			b.WriteString(v.text)
			start = s.nodes[c].end
		}
		if b.Len() > maxConst {
			return
		}
	}
	if end < start || end-start > 10*maxConst {
		return
	}
	if text := string(s.source[start:end]); !strings.Contains(text, `\N{`) { // \N names a character
		b.WriteString(g.content(text, prefix))
	} else {
		return
	}
	s.set(i, value{text: b.String(), known: true})
}

func (pythonGrammar) content(raw, prefix string) string {
	if strings.Contains(prefix, "r") {
		return raw
	}
	return unescape(raw, false)
}

// recordConcatenated records the value of adjacent strings, which Python joins.
func (g pythonGrammar) recordConcatenated(s *scan, i int32) {
	var b strings.Builder
	for c := range s.namedChildren(i) {
		v := s.value(c)
		if !v.known || b.Len() > maxConst {
			return
		}
		b.WriteString(v.text)
	}
	s.set(i, value{text: b.String(), known: true})
}
