package screen

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Bounds of what is followed.
const (
	maxPasses = 8   // over a source, until names mean what they mean
	maxPaths  = 64  // that one name may mean
	maxPath   = 200 // bytes of one
	maxConst  = 100 // bytes of a constant string: longer ones name nothing
	maxDeep   = 50  // patterns in patterns
)

// path is what an expression may be: "os.system". A soft one is known by its
// name alone, and the source makes something else of that name somewhere.
type path struct {
	name string
	soft bool
}

// value is what is known of an expression.
type value struct {
	paths []path
	text  string // of a constant string
	known bool   // that it is one
}

func (v value) empty() bool { return !v.known && len(v.paths) == 0 }

// scan is one source on its way through the rules.
type scan struct {
	*tree
	m       *matcher
	grammar grammar
	names   map[string][]path // what the source makes of names
	bound   map[string]bool   // names that it binds
	values  map[int32]value   // of nodes, as far as anything is known

	steps   int  // nodes that were visited
	changed bool // a name has come to mean more in this pass
	tell    bool // this pass is the one that finds
	tangled bool // not all was followed
	found   []Finding
}

// grammar is what languages differ in.
type grammar interface {
	// visit looks at a node whose children have been looked at.
	visit(s *scan, i int32)
	// member is what a member of something is called.
	member(of, name string) string
}

// run finds what the rules do not want.
func (s *scan) run(ctx context.Context) error {
	s.names, s.bound = map[string][]path{}, map[string]bool{}
	for pass := 1; ; pass++ {
		s.changed, s.values = false, map[int32]value{}
		s.ascend(func(i int32) bool {
			s.grammar.visit(s, i)
			s.steps++
			return s.steps%1024 != 0 || ctx.Err() == nil
		})
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.tell {
			break
		}
		if s.tangled = s.tangled || s.changed && pass == maxPasses; !s.changed || s.tangled {
			s.tell = true
		}
	}
	if s.tangled {
		s.find(0, DynamicRule, "", "names are passed on too often to be followed")
	}
	return nil
}

// find notes a finding. Only the last pass does.
func (s *scan) find(i int32, rule, name, format string, args ...any) {
	if !s.tell || len(s.found) > 10*maxFindings || len(s.nodes) == 0 {
		return
	}
	s.findAt(s.nodes[i].start, rule, name, format, args...)
}

// findAt is find for a place without a node.
func (s *scan) findAt(at uint32, rule, name, format string, args ...any) {
	line, column := s.at(at)
	s.found = append(s.found, Finding{Line: line, Column: column, Rule: rule, Name: clip(name), Message: fmt.Sprintf(format, args...)})
}

// set notes what is known of a node.
func (s *scan) set(i int32, v value) {
	if len(v.text) > maxConst {
		v.text, v.known = "", false
	}
	if len(v.paths) > maxPaths {
		v.paths, s.tangled = v.paths[:maxPaths], true
	}
	if !v.empty() {
		s.values[i] = v
	}
}

// value is what is known of a node.
func (s *scan) value(i int32) value {
	if i < 0 {
		return value{}
	}
	return s.values[i]
}

// pass gives a node what is known of others.
func (s *scan) pass(i int32, from ...int32) {
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

// join adds paths to others; one that is not soft counts.
func join(to, more []path) []path {
	for _, p := range more {
		at := slices.IndexFunc(to, func(q path) bool { return q.name == p.name })
		switch {
		case at < 0:
			to = append(slices.Clip(to), p)
		case to[at].soft && !p.soft:
			to = slices.Clone(to)
			to[at].soft = false
		}
	}
	return to
}

// bind notes that the source binds a name.
func (s *scan) bind(name string) {
	if !s.bound[name] {
		s.bound[name], s.changed = true, true
	}
}

// learn notes what a name may mean.
func (s *scan) learn(name string, paths []path) {
	s.bind(name)
	paths = slices.DeleteFunc(slices.Clone(paths), func(p path) bool { return p.soft && p.name == name })
	old := s.names[name]
	next := join(old, paths)
	if len(next) > maxPaths {
		s.tangled = true
		return
	}
	if !slices.Equal(old, next) {
		s.names[name], s.changed = next, true
	}
}

// follow tells the paths that may matter to a rule.
func (s *scan) follow(names ...string) (out []path) {
	for _, name := range names {
		if len(name) <= maxPath && (s.m.roots[root(name)] || strings.HasPrefix(name, "*.")) {
			out = append(out, path{name: s.m.cut(name)})
		}
	}
	return out
}

// name is what is known of a name that is read.
func (s *scan) name(i int32, name string) {
	paths := slices.Clip(s.names[name])
	if s.m.roots[name] {
		paths = join(paths, []path{{name, s.bound[name]}})
	}
	s.set(i, value{paths: paths})
}

// member is what is known of a member of something.
func (s *scan) member(of value, name string) (out []path) {
	for _, p := range of.paths {
		if s.m.stars[name] && strings.HasPrefix(p.name, "*.") {
			continue
		}
		for _, q := range s.follow(s.grammar.member(p.name, name)) {
			q.soft = p.soft
			out = join(out, []path{q})
		}
	}
	if s.m.stars[name] {
		out = join(out, []path{{name: "*." + name}})
	}
	return out
}

// read checks a member's name against the rules for attributes.
func (s *scan) read(i int32, name string) {
	if s.m.attrs[name] {
		s.find(i, AttributeRule, name, "attribute %s is denied", clip(name))
	}
}

// use checks a function that is called, or only named.
func (s *scan) use(i int32, v value, called bool) {
	verb := "use"
	if called {
		verb = "call"
	}
	for _, p := range v.paths {
		rule, ok := s.m.denied(p.name)
		star := strings.HasPrefix(p.name, "*.")
		if !ok || !called && (star || p.soft && !strings.Contains(p.name, ".")) {
			continue
		}
		s.find(i, CallRule, rule, "%s of %s is denied", verb, clip(strings.TrimPrefix(p.name, "*.")))
	}
}

// passed finds a function that imports, where it is neither called nor given a
// name that is followed.
func (s *scan) passed(i int32, importer func(string) bool) {
	for _, p := range s.value(i).paths {
		if importer(p.name) && !p.soft {
			s.find(i, DynamicRule, p.name, "%s is passed on", clip(p.name))
		}
	}
}

// load checks an import by name.
func (s *scan) load(i int32, module string) {
	if message, wrong := s.m.imports(module); wrong {
		s.find(i, ImportRule, module, "%s", message)
	}
}

// loadValue checks an import by what a value says, and tells what it gives.
func (s *scan) loadValue(i int32, v value, module func(string) string) []path {
	if !v.known {
		s.find(i, DynamicRule, "import", "a module is imported by a name that is made at run time")
		return nil
	}
	name := module(v.text)
	s.load(i, name)
	return s.follow(name)
}

// lookup is a member that is looked up by a value, in what may hold functions.
func (s *scan) lookup(i int32, of, name value, holds func(string) bool) []path {
	if name.known {
		s.read(i, name.text)
		return s.member(of, name.text)
	}
	if slices.ContainsFunc(of.paths, func(p path) bool { return !p.soft && holds(p.name) }) {
		s.find(i, DynamicRule, "lookup", "a function is looked up by a name that is made at run time")
	}
	return nil
}
