package screen

import (
	"slices"
	"strings"
)

// javascriptGrammar is the grammar of JavaScript.
type javascriptGrammar struct{}

// javascriptRoots returns the names that are followed regardless of the rules.
func javascriptRoots() []string {
	return []string{"globalThis", "global", "self", "window", "this", "require", "module", "process", "Reflect", "Object"}
}

// isJavaScriptGlobal reports whether name is an object whose members are the
// globals.
func isJavaScriptGlobal(name string) bool {
	switch name {
	case "globalThis", "global", "self", "window":
		return true
	}
	return false
}

func (javascriptGrammar) member(of, name string) string {
	if isJavaScriptGlobal(of) || of == "this" {
		return name
	}
	if name == "default" { // the default export of a CommonJS module is the module itself
		return of
	}
	return of + "." + name
}

func (javascriptGrammar) ident(s *scan, i int32) string { return unescape(s.text(i), true) }

// module returns the name of a module without the "node:" prefix.
func (javascriptGrammar) module(name string) string { return strings.TrimPrefix(name, "node:") }

func (g javascriptGrammar) visit(s *scan, i int32) {
	switch s.kind(i) {
	case "identifier", "shorthand_property_identifier":
		g.visitIdentifier(s, i)
	case "this":
		s.useName(i, "this")
	case "shorthand_property_identifier_pattern":
		s.bind(g.ident(s, i))
	case "member_expression":
		if property := s.child(i, "property"); property >= 0 {
			name := g.ident(s, property)
			s.checkAttribute(property, name)
			s.set(i, value{paths: s.member(s.value(s.child(i, "object")), name)})
			g.checkName(s, i)
		}
	case "subscript_expression":
		s.set(i, value{paths: s.lookup(i, s.value(s.child(i, "object")), s.value(s.child(i, "index")), isJavaScriptGlobal)})
		g.checkName(s, i)
	case "call_expression", "new_expression":
		g.visitCall(s, i)
	case "variable_declarator":
		g.assign(s, i, s.child(i, "name"), s.child(i, "value"))
	case "assignment_expression", "augmented_assignment_expression", "assignment_pattern":
		g.assign(s, i, s.child(i, "left"), s.child(i, "right"))
	case "import_statement":
		g.importStatement(s, i)
	case "export_statement":
		if source := s.child(i, "source"); source >= 0 {
			g.checkImport(s, i, s.value(source))
		}
	case "string", "template_string":
		g.recordString(s, i)
	case "binary_expression":
		if sign := s.child(i, "operator"); sign >= 0 {
			if t := s.text(sign); t == "||" || t == "&&" || t == "??" {
				s.copyValue(i, s.child(i, "left"), s.child(i, "right"))
				return
			}
		}
		s.recordSum(i)
	case "parenthesized_expression", "await_expression", "template_substitution", "computed_property_name":
		s.copyValue(i, s.onlyChild(i))
	case "sequence_expression":
		last := int32(-1)
		for c := range s.namedChildren(i) {
			last = c
		}
		s.copyValue(i, last)
	case "ternary_expression":
		s.copyValue(i, s.child(i, "consequence"), s.child(i, "alternative"))
	}
}

// visitIdentifier distinguishes a use of a name from a binding.
func (g javascriptGrammar) visitIdentifier(s *scan, i int32) {
	name, field := g.ident(s, i), s.fieldName(i)
	switch s.kind(s.nodes[i].parent) {
	case "variable_declarator", "function_declaration", "function_expression", "generator_function", "generator_function_declaration",
		"class_declaration", "class":
		if field == "name" {
			s.bind(name)
			return
		}
	case "formal_parameters", "array_pattern", "rest_pattern", "import_clause", "namespace_import":
		s.bind(name)
		return
	case "import_specifier":
		return
	case "arrow_function", "catch_clause":
		if field == "parameter" {
			s.bind(name)
			return
		}
	case "assignment_pattern", "assignment_expression", "object_assignment_pattern", "for_in_statement":
		if field == "left" {
			s.bind(name)
			return
		}
	case "pair_pattern":
		if field == "value" {
			s.bind(name)
			return
		}
	}
	s.useName(i, name)
	s.checkAttribute(i, name)
	g.checkName(s, i)
}

// checkName checks a name that is not called. Calls and member accesses are
// checked at their own nodes.
func (g javascriptGrammar) checkName(s *scan, i int32) {
	up := s.nodes[i].parent
	switch field := s.fieldName(i); s.kind(up) {
	case "call_expression", "new_expression":
		if field == "function" || field == "constructor" {
			return
		}
	case "member_expression", "subscript_expression":
		if field == "object" {
			return
		}
	case "binary_expression", "unary_expression":
		if sign := s.child(up, "operator"); sign >= 0 && slices.Contains([]string{"instanceof", "typeof", "===", "!==", "==", "!="}, s.text(sign)) {
			return
		}
	}
	v := s.value(i)
	if s.kind(i) == "member_expression" {
		// Function.prototype cannot create a function.
		v.paths = slices.DeleteFunc(slices.Clone(v.paths), func(p path) bool { return strings.Contains(p.name, ".prototype") })
	}
	s.checkUse(i, v, false)
	switch s.kind(up) {
	case "variable_declarator", "assignment_expression", "assignment_pattern", "parenthesized_expression", "sequence_expression":
	default:
		s.checkPassedImporter(i, isJavaScriptImporter)
	}
}

// isJavaScriptImporter reports whether a function imports modules.
func isJavaScriptImporter(name string) bool {
	return name == "require" || name == "module.require" || name == "process.getBuiltinModule"
}

// assign records the value assigned to a name or a pattern.
func (g javascriptGrammar) assign(s *scan, i, to, from int32) {
	if to < 0 || from < 0 {
		return
	}
	s.copyValue(i, from)
	if v := s.value(from); len(v.paths) > 0 || s.kind(to) == "object_pattern" {
		g.destructure(s, to, v, 0)
	}
}

// destructure records the values that a pattern assigns to its names.
func (g javascriptGrammar) destructure(s *scan, to int32, v value, depth int) {
	if to < 0 || depth > maxDepth {
		s.incomplete = s.incomplete || depth > maxDepth
		return
	}
	switch s.kind(to) {
	case "identifier", "shorthand_property_identifier_pattern":
		s.recordPaths(g.ident(s, to), v.paths)
	case "assignment_pattern":
		g.destructure(s, s.child(to, "left"), v, depth+1)
	case "object_pattern":
		for c := range s.namedChildren(to) {
			key, name := c, c
			switch s.kind(c) {
			case "pair_pattern":
				key, name = s.child(c, "key"), s.child(c, "value")
			case "object_assignment_pattern":
				key = s.child(c, "left")
				name = key
			}
			if key < 0 {
				continue
			}
			k := s.value(key)
			if kind := s.kind(key); kind == "property_identifier" || kind == "shorthand_property_identifier_pattern" {
				k = value{text: g.ident(s, key), known: true}
			}
			member := value{paths: s.lookup(key, v, k, isJavaScriptGlobal)}
			s.checkUse(key, member, false)
			g.destructure(s, name, member, depth+1)
		}
	}
}

// checkImport checks an import, and returns the imported paths.
func (g javascriptGrammar) checkImport(s *scan, i int32, v value) []path {
	if scheme, _, ok := strings.Cut(v.text, ":"); v.known && ok && (scheme == "data" || strings.HasPrefix(scheme, "http") || scheme == "blob") {
		s.find(i, DynamicRule, scheme+":", "import of a %s: address is denied", clip(scheme))
		return nil
	}
	return s.checkImportOf(i, v, g.module)
}

func (g javascriptGrammar) importStatement(s *scan, i int32) {
	source := s.child(i, "source")
	if source < 0 {
		return
	}
	from := g.checkImport(s, i, s.value(source))
	for clause := range s.namedChildren(i) {
		if s.kind(clause) != "import_clause" {
			continue
		}
		for c := range s.namedChildren(clause) {
			switch s.kind(c) {
			case "identifier":
				s.recordPaths(g.ident(s, c), from)
			case "namespace_import":
				if name := s.onlyChild(c); name >= 0 {
					s.recordPaths(g.ident(s, name), from)
				}
			case "named_imports":
				g.visitNamedImports(s, c, from)
			}
		}
	}
}

func (g javascriptGrammar) visitNamedImports(s *scan, i int32, from []path) {
	for c := range s.namedChildren(i) {
		name, alias := s.child(c, "name"), s.child(c, "alias")
		if name < 0 {
			continue
		}
		if alias < 0 {
			alias = name
		}
		text := g.ident(s, name)
		if v := s.value(name); v.known {
			text = v.text
		}
		s.checkAttribute(name, text)
		paths := s.member(value{paths: from}, text)
		s.checkUse(name, value{paths: paths}, false)
		s.recordPaths(g.ident(s, alias), paths)
	}
}
