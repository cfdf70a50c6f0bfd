package screen

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Limits on the analysis.
const (
	maxPasses = 8   // passes over a source, which are repeated while the values of names change
	maxPaths  = 64  // possible paths of one name
	maxPath   = 200 // bytes of one path
	maxConst  = 100 // bytes of a constant string; longer strings cannot be names
	maxDepth  = 50  // nesting of patterns
)

// path is a possible value of an expression, such as "os.system". A soft path is
// derived from the name alone, although the source also assigns a value to that
// name.
type path struct {
	name string
	soft bool
}

// value is the known value of an expression.
type value struct {
	paths []path
	text  string // the value of a constant string
	known bool   // whether text is valid
}

func (v value) isEmpty() bool { return !v.known && len(v.paths) == 0 }

// scan is the analysis of one source.
type scan struct {
	*tree
	m       *matcher
	grammar grammar
	names   map[string][]path // the possible paths of names
	bound   map[string]bool   // names that the source binds
	values  map[int32]value   // known values of nodes

	steps      int  // number of visited nodes
	changed    bool // whether a name got a new value in this pass
	reporting  bool // whether findings are recorded in this pass
	incomplete bool // whether a limit was reached
	found      []Finding
}

// grammar is the language-specific part of the analysis.
type grammar interface {
	// visit handles a node after its children.
	visit(s *scan, i int32)
	// member returns the path of a member of the object with the given path.
	member(object, name string) string
}

// run finds constructs that the rules forbid.
func (s *scan) run(ctx context.Context) error {
	s.names, s.bound = map[string][]path{}, map[string]bool{}
	for pass := 1; ; pass++ {
		s.changed, s.values = false, map[int32]value{}
		s.walk(func(i int32) bool {
			s.grammar.visit(s, i)
			s.steps++
			return s.steps%1024 != 0 || ctx.Err() == nil
		})
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.reporting {
			break
		}
		if s.incomplete = s.incomplete || s.changed && pass == maxPasses; !s.changed || s.incomplete {
			s.reporting = true
		}
	}
	if s.incomplete {
		s.find(0, DynamicRule, "", "names are passed on too often to be followed")
	}
	return nil
}

// find records a finding at a node. Only the last pass records findings.
func (s *scan) find(i int32, rule, name, format string, args ...any) {
	if !s.reporting || len(s.found) > 10*maxFindings || len(s.nodes) == 0 {
		return
	}
	s.findAt(s.nodes[i].start, rule, name, format, args...)
}

// findAt records a finding at a byte offset.
func (s *scan) findAt(offset uint32, rule, name, format string, args ...any) {
	line, column := s.position(offset)
	s.found = append(s.found, Finding{Line: line, Column: column, Rule: rule, Name: clip(name), Message: fmt.Sprintf(format, args...)})
}

// set records the value of a node.
func (s *scan) set(i int32, v value) {
	if len(v.text) > maxConst {
		v.text, v.known = "", false
	}
	if len(v.paths) > maxPaths {
		v.paths, s.incomplete = v.paths[:maxPaths], true
	}
	if !v.isEmpty() {
		s.values[i] = v
	}
}

// value returns the known value of a node.
func (s *scan) value(i int32) value {
	if i < 0 {
		return value{}
	}
	return s.values[i]
}

// copyValue sets the value of a node to the combined values of other nodes.
func (s *scan) copyValue(i int32, from ...int32) {
	var v value
	for _, f := range from {
		one := s.value(f)
		v.paths = join(v.paths, one.paths)
		if len(v.paths) > maxPaths {
			break
		}
		if len(from) == 1 {
			v.text, v.known = one.text, one.known
		}
	}
	s.set(i, v)
}

// join returns the union of two lists of paths. A path that is in both lists is
// soft only if it is soft in both.
func join(to, more []path) []path {
	for _, p := range more {
		index := slices.IndexFunc(to, func(q path) bool { return q.name == p.name })
		switch {
		case index < 0:
			to = append(slices.Clip(to), p)
		case to[index].soft && !p.soft:
			to = slices.Clone(to)
			to[index].soft = false
		}
	}
	return to
}

// bind records that the source binds a name.
func (s *scan) bind(name string) {
	if !s.bound[name] {
		s.bound[name], s.changed = true, true
	}
}

// recordPaths records the possible paths of a name.
func (s *scan) recordPaths(name string, paths []path) {
	s.bind(name)
	paths = slices.DeleteFunc(slices.Clone(paths), func(p path) bool { return p.soft && p.name == name })
	old := s.names[name]
	next := join(old, paths)
	if len(next) > maxPaths {
		s.incomplete = true
		return
	}
	if !slices.Equal(old, next) {
		s.names[name], s.changed = next, true
	}
}

// follow returns the paths of those names that a rule can match.
func (s *scan) follow(names ...string) (out []path) {
	for _, name := range names {
		if len(name) <= maxPath && (s.m.roots[root(name)] || strings.HasPrefix(name, "*.")) {
			out = append(out, path{name: s.m.truncatePath(name)})
		}
	}
	return out
}

// useName records the value of a node that uses a name.
func (s *scan) useName(i int32, name string) {
	paths := slices.Clip(s.names[name])
	if s.m.roots[name] {
		paths = join(paths, []path{{name, s.bound[name]}})
	}
	s.set(i, value{paths: paths})
}

// member returns the paths of a member of a value.
func (s *scan) member(of value, name string) (out []path) {
	for _, p := range of.paths {
		if s.m.deniedMembers[name] && strings.HasPrefix(p.name, "*.") {
			continue
		}
		for _, q := range s.follow(s.grammar.member(p.name, name)) {
			q.soft = p.soft
			out = join(out, []path{q})
		}
	}
	if s.m.deniedMembers[name] {
		out = join(out, []path{{name: "*." + name}})
	}
	return out
}

// checkAttribute checks the name of a member against the rules for attributes.
func (s *scan) checkAttribute(i int32, name string) {
	if s.m.attrs[name] {
		s.find(i, AttributeRule, name, "attribute %s is denied", clip(name))
	}
}

// checkUse checks the use of a value, which is a call if called is true.
func (s *scan) checkUse(i int32, v value, called bool) {
	verb := "use"
	if called {
		verb = "call"
	}
	for _, p := range v.paths {
		rule, ok := s.m.findDenied(p.name)
		star := strings.HasPrefix(p.name, "*.")
		if !ok || !called && (star || p.soft && !strings.Contains(p.name, ".")) {
			continue
		}
		s.find(i, CallRule, rule, "%s of %s is denied", verb, clip(strings.TrimPrefix(p.name, "*.")))
	}
}

// checkPassedImporter reports a function that imports modules and is passed on, so
// that its calls cannot be followed.
func (s *scan) checkPassedImporter(i int32, importer func(string) bool) {
	for _, p := range s.value(i).paths {
		if importer(p.name) && !p.soft {
			s.find(i, DynamicRule, p.name, "%s is passed on", clip(p.name))
		}
	}
}

// checkImport checks an import of a module by its name.
func (s *scan) checkImport(i int32, module string) {
	if message, denied := s.m.findDeniedImport(module); denied {
		s.find(i, ImportRule, module, "%s", message)
	}
}

// checkImportOf checks an import of the module whose name is a value, and returns
// the imported paths.
func (s *scan) checkImportOf(i int32, v value, module func(string) string) []path {
	if !v.known {
		s.find(i, DynamicRule, "import", "a module is imported by a name that is made at run time")
		return nil
	}
	name := module(v.text)
	s.checkImport(i, name)
	return s.follow(name)
}

// lookup returns the member of an object whose name is a value. If this value is
// unknown, lookup reports a finding if the object may contain functions.
func (s *scan) lookup(i int32, of, name value, holds func(string) bool) []path {
	if name.known {
		s.checkAttribute(i, name.text)
		return s.member(of, name.text)
	}
	if slices.ContainsFunc(of.paths, func(p path) bool { return !p.soft && holds(p.name) }) {
		s.find(i, DynamicRule, "lookup", "a function is looked up by a name that is made at run time")
	}
	return nil
}
