// Package wiretypes generates the types of API clients, in TypeScript and in
// Python, from the schemas of an OpenAPI document. It supports the part of JSON
// Schema that docs/openapi.json uses, and rejects the rest.
package wiretypes

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const schemaPrefix = "#/components/schemas/"

// document is the part of an OpenAPI document that defines types.
type document struct {
	Paths      map[string]map[string]operation
	Components struct {
		Schemas   map[string]*schema
		Responses map[string]body
	}
}

type operation struct {
	RequestBody body
	Responses   map[string]body
}

type body struct {
	Content map[string]struct{ Schema *schema }
}

type schema struct {
	Ref                  string `json:"$ref"`
	Type                 oneOrMore
	Description          string
	Enum                 []any
	Required             []string
	Properties           map[string]*schema
	Items                *schema
	OneOf, AllOf         []*schema
	AdditionalProperties *additional
	WriteOnly            bool
}

// oneOrMore is a list that may be written as a single element without the list.
type oneOrMore []string

// UnmarshalJSON implements json.Unmarshaler.
func (o *oneOrMore) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*o = oneOrMore{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(o))
}

// additional is either the schema of additional properties or a boolean that reports whether
// they are allowed.
type additional struct {
	allowed bool
	schema  *schema
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *additional) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &a.allowed) == nil {
		return nil
	}
	a.allowed = true
	return json.Unmarshal(b, &a.schema)
}

// definition is a named type. It is either an object, with its own fields and those of its
// base, or a union of other types.
type definition struct {
	name, doc string
	base      string
	fields    []field
	closed    bool // no other fields are allowed
	union     *expression
}

type field struct {
	name, doc string
	optional  bool
	typ       expression
}

// expression is the type of a value.
type expression struct {
	kind kind
	text string       // a reference's name or a literal's value
	of   []expression // elements of a list or map, or variants of a union
}

type kind string

// Kinds of expressions. The first ones have the names of JSON Schema.
const (
	isString  kind = "string"
	isInteger kind = "integer"
	isNumber  kind = "number"
	isBoolean kind = "boolean"
	isNull    kind = "null"
	isAny     kind = "any"
	isList    kind = "list"
	isMap     kind = "map"
	isUnion   kind = "union"
	isLiteral kind = "literal"
	isRef     kind = "ref"
)

// parse returns the types of a document, sorted by name. A schema becomes two types if it is
// used in both requests and responses and has a text form that only requests may use. The type
// for requests has the suffix Request.
func parse(b []byte) ([]definition, error) {
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("decode OpenAPI document: %w", err)
	}
	r := &reader{schemas: d.Components.Schemas, requests: map[string]bool{}, responses: map[string]bool{}, text: map[string]bool{}}
	for _, content := range d.Components.Responses {
		r.addReachable(content, r.responses)
	}
	for _, operations := range d.Paths {
		for _, o := range operations {
			r.addReachable(o.RequestBody, r.requests)
			for _, content := range o.Responses {
				r.addReachable(content, r.responses)
			}
		}
	}
	for name := range r.schemas {
		used := map[string]bool{}
		r.walk(&schema{Ref: schemaPrefix + name}, used)
		for other := range used {
			r.text[name] = r.text[name] || hasText(r.schemas[other])
		}
	}
	var out []definition
	for _, name := range slices.Sorted(maps.Keys(r.schemas)) {
		directions := []bool{r.requests[name] && !r.responses[name]}
		if r.differs(name) {
			directions = []bool{false, true}
		}
		for _, request := range directions {
			def, err := r.readDefinition(name, request)
			if err != nil {
				return nil, fmt.Errorf("schema %s: %w", name, err)
			}
			out = append(out, def)
		}
	}
	for i, def := range out {
		if slices.ContainsFunc(out[:i], func(o definition) bool { return o.name == def.name }) {
			return nil, fmt.Errorf("two types are named %s", def.name)
		}
	}
	return out, nil
}

// reader converts schemas. requests and responses hold the names of the schemas that each
// direction uses, and text holds the names of the schemas with a text form.
type reader struct {
	schemas                   map[string]*schema
	requests, responses, text map[string]bool
}

func (r *reader) addReachable(b body, names map[string]bool) {
	for _, c := range b.Content {
		if c.Schema != nil {
			r.walk(c.Schema, names)
		}
	}
}

// walk adds the names of the schemas that s refers to.
func (r *reader) walk(s *schema, names map[string]bool) {
	if name, ok := strings.CutPrefix(s.Ref, schemaPrefix); ok {
		if next := r.schemas[name]; next != nil && !names[name] {
			names[name] = true
			r.walk(next, names)
		}
		return
	}
	for _, part := range parts(s) {
		r.walk(part, names)
	}
}

// parts returns the schemas directly in s.
func parts(s *schema) []*schema {
	out := slices.Concat(s.OneOf, s.AllOf, slices.Collect(maps.Values(s.Properties)))
	if s.Items != nil {
		out = append(out, s.Items)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.schema != nil {
		out = append(out, s.AdditionalProperties.schema)
	}
	return out
}

// hasText reports whether s contains a value with a form that is allowed only in requests.
func hasText(s *schema) bool { return s.WriteOnly || slices.ContainsFunc(parts(s), hasText) }

// differs reports whether a schema becomes one type for each direction.
func (r *reader) differs(name string) bool {
	return r.requests[name] && r.responses[name] && r.text[name]
}

// nameOf returns the name of a schema's type.
func (r *reader) nameOf(name string, request bool) string {
	if request && r.differs(name) {
		return name + "Request"
	}
	return name
}

func (r *reader) readDefinition(name string, request bool) (definition, error) {
	s := r.schemas[name]
	out := definition{name: r.nameOf(name, request), doc: s.Description}
	if len(s.OneOf) > 0 && len(s.Type) == 0 {
		union, err := r.readExpression(s, request)
		out.union = &union
		return out, err
	}
	for _, part := range s.AllOf {
		base, ok := strings.CutPrefix(part.Ref, schemaPrefix)
		switch {
		case !ok:
			s = part
		case out.base != "":
			return out, errors.New("allOf has two references")
		default:
			out.base = r.nameOf(base, request)
		}
	}
	if !slices.Equal(s.Type, oneOrMore{"object"}) {
		return out, fmt.Errorf("is a %v, not an object or a union", s.Type)
	}
	out.closed = s.AdditionalProperties != nil && !s.AdditionalProperties.allowed
	for _, p := range slices.Sorted(maps.Keys(s.Properties)) {
		is, err := r.readExpression(s.Properties[p], request)
		if err != nil {
			return out, fmt.Errorf("property %s: %w", p, err)
		}
		out.fields = append(out.fields, field{name: p, doc: s.Properties[p].Description, optional: !slices.Contains(s.Required, p), typ: is})
	}
	return out, nil
}

func (r *reader) readExpression(s *schema, request bool) (expression, error) {
	if s.Ref != "" {
		name, ok := strings.CutPrefix(s.Ref, schemaPrefix)
		if !ok || r.schemas[name] == nil {
			return expression{}, fmt.Errorf("unknown reference %s", s.Ref)
		}
		return expression{kind: isRef, text: r.nameOf(name, request)}, nil
	}
	var of []expression
	add := func(e expression, err error) error {
		of = append(of, e)
		return err
	}
	switch {
	case len(s.AllOf) > 0:
		return expression{}, errors.New("allOf without a name")
	case len(s.Enum) > 0:
		for _, v := range s.Enum {
			text, ok := v.(string)
			if !ok {
				return expression{}, fmt.Errorf("enum with %v", v)
			}
			of = append(of, expression{kind: isLiteral, text: text})
		}
	case len(s.OneOf) > 0:
		for _, v := range s.OneOf {
			if v.WriteOnly && !request {
				continue
			}
			if err := add(r.readExpression(v, request)); err != nil {
				return expression{}, err
			}
		}
	case len(s.Type) == 0:
		return expression{kind: isAny}, nil
	default:
		for _, t := range s.Type {
			if err := add(r.readSimple(t, s, request)); err != nil {
				return expression{}, err
			}
		}
	}
	if len(of) == 1 {
		return of[0], nil
	}
	return expression{kind: isUnion, of: of}, nil
}

// readSimple returns the expression for one of a schema's types.
func (r *reader) readSimple(t string, s *schema, request bool) (expression, error) {
	element := func(k kind, of *schema) (expression, error) {
		if of == nil {
			return expression{kind: k, of: []expression{{kind: isAny}}}, nil
		}
		e, err := r.readExpression(of, request)
		return expression{kind: k, of: []expression{e}}, err
	}
	switch k := kind(t); {
	case slices.Contains([]kind{isString, isInteger, isNumber, isBoolean, isNull}, k):
		return expression{kind: k}, nil
	case t == "array":
		return element(isList, s.Items)
	case t == "object" && len(s.Properties) > 0:
		return expression{}, errors.New("object without a name")
	case t == "object" && s.AdditionalProperties != nil:
		return element(isMap, s.AdditionalProperties.schema)
	case t == "object":
		return element(isMap, nil)
	}
	return expression{}, fmt.Errorf("unknown type %q", t)
}
