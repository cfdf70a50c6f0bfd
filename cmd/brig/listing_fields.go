package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	syntax "text/template/parse"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
)

// checkFields rejects a template with a field that the items of a list never have.
// A field that only some items have is valid. The names in maps, for example those
// of labels, are unknown, and so are the fields inside of range and with.
func checkFields(tree *syntax.Tree, items any) error {
	f := fieldCheck{item: itemType(reflect.TypeOf(rest.JSON(items)))}
	if f.item != nil {
		f.checkNode(tree.Root)
	}
	return f.err
}

// itemType returns the type of the items of a list in REST, which is an object with one array. It
// returns nil if the type of the items is unknown.
func itemType(t reflect.Type) reflect.Type {
	if t != nil && t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			if f.Type.Kind() == reflect.Slice && f.IsExported() {
				return f.Type.Elem()
			}
		}
	}
	if t != nil && t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return nil
}

// jsonFields returns the fields of a type's JSON form, or nil if the JSON form is not an object
// with known fields.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	custom := reflect.TypeFor[json.Marshaler]()
	if t.Kind() != reflect.Struct || t.Implements(custom) || reflect.PointerTo(t).Implements(custom) {
		return nil
	}
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "-" && (name != "" || !f.Anonymous) {
			fields[cmp.Or(name, f.Name)] = f.Type
		}
	}
	return fields
}

// fieldCheck looks for unknown fields in a template.
type fieldCheck struct {
	item reflect.Type
	err  error // the first unknown field
}

// checkNode checks a node and all lower nodes whose dot is an item.
func (f *fieldCheck) checkNode(n syntax.Node) {
	switch n := n.(type) {
	case *syntax.ListNode:
		if n != nil {
			for _, below := range n.Nodes {
				f.checkNode(below)
			}
		}
	case *syntax.ActionNode:
		f.checkNode(n.Pipe)
	case *syntax.PipeNode:
		for _, c := range n.Cmds {
			for _, argument := range c.Args {
				f.checkNode(argument)
			}
		}
	case *syntax.FieldNode:
		f.checkPath(n.Ident)
	case *syntax.VariableNode:
		if n.Ident[0] == "$" {
			f.checkPath(n.Ident[1:])
		}
	case *syntax.IfNode:
		f.checkNode(n.Pipe)
		f.checkNode(n.List)
		f.checkNode(n.ElseList)
	case *syntax.RangeNode:
		f.checkNode(n.Pipe)
		f.checkNode(n.ElseList)
	case *syntax.WithNode:
		f.checkNode(n.Pipe)
		f.checkNode(n.ElseList)
	}
}

// checkPath checks a field and the fields inside it, for example those of .limits.memory.
func (f *fieldCheck) checkPath(names []string) {
	t := f.item
	for i, name := range names {
		known := jsonFields(t)
		if known == nil || f.err != nil {
			return
		}
		if t = known[name]; t == nil {
			above := "." + strings.Join(names[:i], ".")
			if i > 0 {
				above += "."
			}
			f.err = brig.InvalidField("--format", "there is no field %s", brig.Clip(above+name, 80)).
				WithHint("the fields are %s", above+strings.Join(slices.Sorted(maps.Keys(known)), ", "+above))
			return
		}
	}
}
