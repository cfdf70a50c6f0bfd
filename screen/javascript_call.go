package screen

import "strings"

func (g javascriptGrammar) visitCall(s *scan, i int32) {
	function := s.child(i, "function")
	if function < 0 {
		function = s.child(i, "constructor")
	}
	if function < 0 {
		return
	}
	v := s.value(function)
	s.checkUse(function, v, true)
	var at []int32
	if list := s.child(i, "arguments"); s.kind(list) == "arguments" {
		for c := range s.namedChildren(list) {
			at = append(at, c)
		}
	} else if list >= 0 {
		at = append(at, list) // a tagged template
	}
	arg := func(n int) value {
		if n < len(at) {
			return s.value(at[n])
		}
		return value{}
	}
	var out []path
	if s.kind(function) == "import" {
		out = g.checkImport(s, i, arg(0))
	}
	for _, p := range v.paths {
		out = join(out, g.resultOf(s, i, p.name, arg, len(at)))
	}
	if len(out) == 0 && s.kind(function) == "member_expression" && len(v.paths) == 0 {
		// This may be a require method of an unknown object.
		if name := s.child(function, "property"); name >= 0 && g.ident(s, name) == "require" && arg(0).known {
			out = g.checkImport(s, i, arg(0))
		}
	}
	s.set(i, value{paths: out})
	g.checkName(s, i)
}

// resultOf returns the possible results of a call of the function name.
func (g javascriptGrammar) resultOf(s *scan, i int32, name string, arg func(int) value, n int) []path {
	switch name {
	case "require", "module.require", "process.mainModule.require", "process.getBuiltinModule":
		return g.checkImport(s, i, arg(0))
	case "Reflect.get", "Object.getOwnPropertyDescriptor":
		return s.lookup(i, arg(0), arg(1), isJavaScriptGlobal)
	case "require.call", "require.apply", "require.bind":
		var out []path
		for k := range n {
			if arg(k).known {
				out = join(out, g.checkImport(s, i, arg(k)))
			}
		}
		if len(out) == 0 {
			return g.checkImport(s, i, value{})
		}
		return out
	}
	return nil
}

// recordString records the value of a string or a template if it is constant.
func (g javascriptGrammar) recordString(s *scan, i int32) {
	var b strings.Builder
	for c := range s.namedChildren(i) {
		switch s.kind(c) {
		case "string_fragment", "escape_sequence":
			if s.nodes[c].end-s.nodes[c].start > 10*maxConst {
				return
			}
			b.WriteString(unescape(s.text(c), true))
		case "template_substitution":
			v := s.value(c)
			if !v.known {
				return
			}
			b.WriteString(v.text)
		default:
			return
		}
		if b.Len() > maxConst {
			return
		}
	}
	s.set(i, value{text: b.String(), known: true})
}
