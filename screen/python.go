package screen

import (
	"slices"
	"strings"
)

// pythonGrammar is the grammar of Python.
type pythonGrammar struct{ foldTable *foldTable }

// pythonRoots returns the names that are followed regardless of the rules.
func pythonRoots() []string {
	return []string{
		"builtins", "__builtins__", "importlib", "sys", "__import__", "getattr", "setattr", "delattr", "vars",
		"globals", "locals", "runpy", "pkgutil",
	}
}

// isPythonImporter reports whether a function imports the module that its
// argument names.
func isPythonImporter(name string) bool {
	switch name {
	case "__import__", "importlib.import_module", "importlib.__import__", "importlib.reload", "runpy.run_module", "pkgutil.resolve_name":
		return true
	}
	return false
}

// isPythonGlobal reports whether name is a module whose members are the
// builtins.
func isPythonGlobal(name string) bool { return name == "builtins" || name == "__builtins__" }

// isPythonNamespace reports whether the lookup of a name in this object returns a
// function or a module.
func isPythonNamespace(name string) bool {
	return isPythonGlobal(name) || name == "sys.modules" || strings.HasSuffix(name, ".__dict__")
}

func (pythonGrammar) member(of, name string) string {
	switch {
	case isPythonGlobal(of) && name == "__dict__":
		return of
	case isPythonGlobal(of), of == "sys.modules":
		return name
	}
	return strings.TrimSuffix(of, ".__dict__") + "." + name
}

func (g pythonGrammar) ident(s *scan, i int32) string { return g.foldTable.fold(s.text(i)) }

// dottedName returns the dotted name of a module, without comments and white space
// between its parts.
func (g pythonGrammar) dottedName(s *scan, i int32) string {
	if s.kind(i) == "identifier" {
		return g.ident(s, i)
	}
	var parts []string
	for c := range s.namedChildren(i) {
		switch s.kind(c) {
		case "identifier":
			parts = append(parts, g.ident(s, c))
		case "import_prefix":
			parts = append(parts, strings.Map(keepDots, s.text(c)))
		case "dotted_name":
			parts = append(parts, g.dottedName(s, c))
		}
	}
	return strings.Join(parts, ".")
}

func keepDots(r rune) rune {
	if r == '.' {
		return r
	}
	return -1
}

func (g pythonGrammar) visit(s *scan, i int32) {
	switch s.kind(i) {
	case "identifier":
		g.visitIdentifier(s, i)
	case "dotted_name":
		g.visitDottedName(s, i)
	case "attribute":
		g.visitAttribute(s, i)
	case "subscript":
		s.set(i, value{paths: s.lookup(i, s.value(s.child(i, "value")), s.value(s.child(i, "subscript")), isPythonNamespace)})
		g.checkModules(s, i, s.value(i))
		g.checkName(s, i)
	case "call":
		g.visitCall(s, i)
	case "assignment", "named_expression", "default_parameter", "typed_default_parameter":
		g.assign(s, i)
	case "import_statement":
		g.importStatement(s, i)
	case "import_from_statement":
		g.importFrom(s, i)
	case "exec_statement":
		s.checkUse(i, value{paths: []path{{name: "exec"}}}, true)
	case "string":
		g.recordString(s, i)
	case "concatenated_string":
		g.recordConcatenated(s, i)
	case "binary_operator":
		s.recordSum(i)
	case "parenthesized_expression", "await", "interpolation":
		s.copyValue(i, s.onlyChild(i))
	case "conditional_expression", "boolean_operator":
		s.copyValue(i, slices.Collect(s.namedChildren(i))...)
	}
}

// recordSum records the sum of two constant strings.
func (s *scan) recordSum(i int32) {
	remaining, right, sign := s.child(i, "left"), s.child(i, "right"), s.child(i, "operator")
	a, b := s.value(remaining), s.value(right)
	if a.known && b.known && sign >= 0 && s.text(sign) == "+" {
		delete(s.values, remaining)
		delete(s.values, right)
		s.set(i, value{text: a.text + b.text, known: true})
	}
}

// visitIdentifier distinguishes a use of a name from a binding.
func (g pythonGrammar) visitIdentifier(s *scan, i int32) {
	up, field := s.nodes[i].parent, s.fieldName(i)
	name := g.ident(s, i)
	switch kind := s.kind(up); kind {
	case "attribute":
		if field == "attribute" {
			return
		}
	case "keyword_argument", "aliased_import", "import_from_statement", "import_statement":
		if field == "name" || field == "alias" {
			return
		}
	case "dotted_name", "relative_import", "global_statement", "nonlocal_statement", "future_import_statement":
		return
	case "function_definition", "class_definition", "named_expression", "default_parameter", "typed_default_parameter":
		if field == "name" {
			s.bind(name)
			return
		}
	case "assignment", "augmented_assignment", "for_statement", "for_in_clause":
		if field == "left" {
			s.bind(name)
			return
		}
	case "typed_parameter":
		if field == "" {
			s.bind(name)
			return
		}
	case "parameters", "lambda_parameters", "pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern",
		"dictionary_splat_pattern", "as_pattern_target":
		s.bind(name)
		return
	}
	s.useName(i, name)
	s.checkAttribute(i, name)
	g.checkName(s, i)
}

// checkName checks a name that is not called. Calls and attribute accesses are
// checked at their own nodes.
func (pythonGrammar) checkName(s *scan, i int32) {
	up := s.kind(s.nodes[i].parent)
	if field := s.fieldName(i); field == "function" && up == "call" || field == "object" && up == "attribute" {
		return
	}
	s.checkUse(i, s.value(i), false)
	switch up {
	case "assignment", "named_expression", "default_parameter", "typed_default_parameter", "parenthesized_expression", "attribute":
	default:
		s.checkPassedImporter(i, isPythonImporter)
	}
}

// visitDottedName handles a dotted name outside of imports, which is a pattern of a
// match statement.
func (g pythonGrammar) visitDottedName(s *scan, i int32) {
	switch s.kind(s.nodes[i].parent) {
	case "import_statement", "import_from_statement", "aliased_import", "relative_import", "future_import_statement":
		return
	}
	name := g.dottedName(s, i)
	s.useName(i, root(name))
	v := s.value(i)
	for part := range strings.SplitSeq(strings.TrimPrefix(strings.TrimPrefix(name, root(name)), "."), ".") {
		if part != "" {
			s.checkAttribute(i, part)
			v.paths = s.member(v, part)
		}
	}
	s.checkUse(i, v, false)
}

func (g pythonGrammar) visitAttribute(s *scan, i int32) {
	object, attribute := s.child(i, "object"), s.child(i, "attribute")
	if attribute < 0 {
		return
	}
	name := g.ident(s, attribute)
	s.checkAttribute(attribute, name)
	of := s.value(object)
	s.set(i, value{paths: s.member(of, name)})
	if !s.m.Only && s.kind(object) == "identifier" {
		// The module may be available although the source does not import it.
		module := g.ident(s, object)
		if _, denied := s.m.findDeniedImport(module); denied && !s.bound[module] {
			s.find(i, ImportRule, module, "use of %s is denied", clip(module+"."+name))
		}
	}
	g.checkModules(s, i, s.value(i))
	g.checkName(s, i)
}

// checkModules reports members that are modules which must not be imported.
func (g pythonGrammar) checkModules(s *scan, i int32, v value) {
	for _, p := range v.paths {
		if slices.Contains(s.m.Imports, p.name) && !s.m.Only && !p.soft {
			s.find(i, ImportRule, p.name, "use of %s is denied", clip(p.name))
		}
	}
}

// assign records the value assigned to a name.
func (g pythonGrammar) assign(s *scan, i int32) {
	to, from := s.child(i, "left"), s.child(i, "right")
	if to < 0 {
		to, from = s.child(i, "name"), s.child(i, "value")
	}
	if to < 0 || from < 0 {
		return
	}
	s.copyValue(i, from)
	g.destructure(s, to, from)
	if k := s.kind(to); k != "pattern_list" && k != "tuple_pattern" && k != "list_pattern" {
		return
	}
	values := slices.Collect(s.namedChildren(from))
	n := 0
	for c := range s.namedChildren(to) {
		if n < len(values) {
			g.destructure(s, c, values[n])
		}
		n++
	}
}

func (g pythonGrammar) destructure(s *scan, to, from int32) {
	if paths := s.value(from).paths; s.kind(to) == "identifier" && len(paths) > 0 {
		s.recordPaths(g.ident(s, to), paths)
	}
}

func (g pythonGrammar) importStatement(s *scan, i int32) {
	for c := range s.namedChildren(i) {
		name, alias := c, int32(-1)
		if s.kind(c) == "aliased_import" {
			name, alias = s.child(c, "name"), s.child(c, "alias")
		}
		module := g.dottedName(s, name)
		if name < 0 || module == "" {
			continue
		}
		s.checkImport(c, module)
		if alias >= 0 {
			s.recordPaths(g.ident(s, alias), s.follow(module))
		} else {
			s.recordPaths(root(module), s.follow(root(module)))
		}
	}
}

func (g pythonGrammar) importFrom(s *scan, i int32) {
	from := s.child(i, "module_name")
	if from < 0 {
		return
	}
	module := g.dottedName(s, from)
	message, denied := s.m.findDeniedImport(module)
	if denied && !s.m.Only {
		s.find(i, ImportRule, module, "%s", message)
	}
	for c := range s.namedChildren(i) {
		if s.kind(c) == "wildcard_import" {
			g.importAll(s, i, module, message, denied)
		}
		if s.fieldName(c) != "name" {
			continue
		}
		name, alias := c, c
		if s.kind(c) == "aliased_import" {
			name, alias = s.child(c, "name"), s.child(c, "alias")
		}
		if name < 0 || alias < 0 {
			continue
		}
		whole := module + "." + g.dottedName(s, name)
		if _, inner := s.m.findDeniedImport(whole); inner && s.m.Only {
			s.find(i, ImportRule, module, "%s", message)
		} else if inner && !denied {
			s.checkImport(i, whole)
		}
		s.checkAttribute(name, g.dottedName(s, name))
		paths := s.follow(whole)
		if isPythonGlobal(module) {
			paths = s.follow(g.dottedName(s, name))
		}
		s.checkUse(i, value{paths: paths}, false)
		s.recordPaths(g.dottedName(s, alias), paths)
	}
}

// importAll checks a wildcard import of a module.
func (g pythonGrammar) importAll(s *scan, i int32, module, message string, denied bool) {
	if denied && s.m.Only {
		s.find(i, ImportRule, module, "%s", message)
	}
	for _, rule := range s.m.Calls {
		if strings.HasPrefix(rule, module+".") {
			s.find(i, CallRule, rule, "import of all of %s is denied, for it has %s", clip(module), rule)
		}
	}
}
