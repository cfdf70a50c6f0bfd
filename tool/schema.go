package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// Schema is what of a JSON schema says how a function is called.
type Schema struct {
	// Name is the function's, if the schema is a whole tool's.
	Name string
	// Parameters are their names, in the order in which they stand there.
	Parameters []string
	root       *schema
}

// schema is a part of a JSON schema. What is not here does not matter for
// types.
type schema struct {
	Name       string             `json:"name"`
	Type       any                `json:"type"` // a name or several
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	Required   []string           `json:"required"`
	Enum       []any              `json:"enum"`
	AnyOf      []*schema          `json:"anyOf"`
	OneOf      []*schema          `json:"oneOf"`
	AllOf      []*schema          `json:"allOf"`
	Ref        string             `json:"$ref"`
	Defs       map[string]*schema `json:"$defs"`
	Old        map[string]*schema `json:"definitions"`
	Parameters *schema            `json:"parameters"`

	// What prepare makes of it, so that no value pays for it again.
	kinds   []string // those of Type that matter
	choices []*schema
	allowed map[string]bool
	refers  *schema // itself, or what Ref means
}

// The bounds of a schema, which anybody may send.
const (
	maxSchema     = 1 << 20 // bytes
	maxDepth      = 64      // how deep schemas and values may be nested
	maxParameters = 1000
)

// ParseSchema reads a schema of a tool's or of its arguments; nil for none.
func ParseSchema(raw json.RawMessage) (*Schema, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if len(raw) > maxSchema {
		return nil, brig.InvalidField("json_schema", "%d bytes are too many", len(raw)).WithHint("give at most %s", brig.FormatBytes(maxSchema))
	}
	if brig.JSONDepth(raw) > maxDepth {
		return nil, brig.InvalidField("json_schema", "it is nested too deeply").WithHint("nest at most %d objects and arrays; $ref and $defs make it flatter", maxDepth)
	}
	s := new(schema)
	var order struct {
		Properties json.RawMessage `json:"properties"`
		Parameters *struct {
			Properties json.RawMessage `json:"properties"`
		} `json:"parameters"`
	}
	if err := errors.Join(json.Unmarshal(raw, s), json.Unmarshal(raw, &order)); err != nil {
		return nil, noSchema(err)
	}
	out := &Schema{Name: s.Name, root: s}
	if s.Parameters != nil {
		out.root, order.Properties = s.Parameters, order.Parameters.Properties
	}
	var err error
	if out.Parameters, err = keys(order.Properties); err != nil {
		return nil, noSchema(err)
	}
	if len(out.Parameters) > maxParameters {
		return nil, brig.InvalidField("json_schema", "%d parameters are too many", len(out.Parameters)).WithHint("give at most %d", maxParameters)
	}
	out.root.prepare(out.root)
	return out, nil
}

// prepare finds out what values need to know of s, which is a part of root.
func (s *schema) prepare(root *schema) {
	if s == nil {
		return
	}
	for _, kind := range kinds(s.Type) {
		if slices.Contains(s.kinds, kind) {
			continue
		}
		if s.kinds = append(s.kinds, kind); !slices.Contains(known, kind) {
			break // which everything fits
		}
	}
	s.choices = slices.Concat(s.AnyOf, s.OneOf)
	if len(s.Enum) > 0 {
		s.allowed = make(map[string]bool, len(s.Enum))
		for _, one := range s.Enum {
			s.allowed[fmt.Sprint(one)] = true
		}
	}
	s.Required = once(s.Required)
	s.refers = root.find(s)
	for _, list := range [][]*schema{{s.Items}, s.choices, s.AllOf} {
		for _, part := range list {
			part.prepare(root)
		}
	}
	for _, parts := range []map[string]*schema{s.Properties, s.Defs, s.Old} {
		for _, part := range parts {
			part.prepare(root)
		}
	}
}

// find follows s, if it is a reference, within the document.
func (s *schema) find(part *schema) *schema {
	for range maxDepth {
		if part == nil || part.Ref == "" {
			return part
		}
		name := part.Ref[strings.LastIndexByte(part.Ref, '/')+1:]
		next := s.Defs[name]
		if next == nil {
			next = s.Old[name]
		}
		part = next
	}
	return nil
}

// target is what s means: itself, or what it refers to; nil for anything.
func (s *schema) target() *schema {
	if s == nil {
		return nil
	}
	return s.refers
}

// known are the types of JSON.
var known = []string{"string", "integer", "number", "boolean", "null", "array", "object"}

// kinds are the types that a schema names.
func kinds(t any) []string {
	switch t := t.(type) {
	case string:
		return []string{t}
	case []any:
		var out []string
		for _, one := range t {
			if name, ok := one.(string); ok {
				out = append(out, name)
			}
		}
		return out
	}
	return nil
}

// once returns a list without what it says again.
func once(list []string) []string {
	seen := make(map[string]bool, len(list))
	return slices.DeleteFunc(list, func(s string) bool {
		before := seen[s]
		seen[s] = true
		return before
	})
}

func noSchema(err error) error {
	return brig.InvalidField("json_schema", "it is no JSON schema of a function").
		WithHint(`for example {"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}`).Because(err)
}

// keys are those of a JSON object in the order in which they stand there, each
// once.
func keys(raw json.RawMessage) (out []string, err error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("read properties: %w", err)
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("read the name of a property: %w", err)
		}
		name, _ := t.(string)
		out = append(out, name)
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return nil, fmt.Errorf("read a property: %w", err)
		}
	}
	return once(out), nil
}
