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

// Schema is the part of a JSON schema that describes a function's parameters.
type Schema struct {
	// Name is the name of the function, if the schema describes a whole tool.
	Name string
	// Parameters are the parameter names in the order of the schema.
	Parameters []string
	root       *schema
}

// schema is a part of a JSON schema. It contains only the keywords that affect
// types.
type schema struct {
	Name       string             `json:"name"`
	Type       any                `json:"type"` // one name or several
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

	// Computed by prepare, so that checks of values do not repeat the work.
	kinds    []string // the relevant types in Type
	choices  []*schema
	allowed  map[string]bool
	resolved *schema // the schema itself, or the target of Ref
}

// Limits on a schema, because any caller may send one.
const (
	maxSchema     = 1 << 20 // bytes
	maxDepth      = 64      // maximum nesting depth of schemas and values
	maxParameters = 1000
)

// ParseSchema parses the schema of a tool or of its arguments. It returns nil for
// an empty schema.
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
		return nil, invalidSchemaError(err)
	}
	out := &Schema{Name: s.Name, root: s}
	if s.Parameters != nil {
		out.root, order.Properties = s.Parameters, order.Parameters.Properties
	}
	var err error
	if out.Parameters, err = objectKeys(order.Properties); err != nil {
		return nil, invalidSchemaError(err)
	}
	if len(out.Parameters) > maxParameters {
		return nil, brig.InvalidField("json_schema", "%d parameters are too many", len(out.Parameters)).WithHint("give at most %d", maxParameters)
	}
	out.root.prepare(out.root)
	return out, nil
}

// prepare computes the derived fields of s and its parts. s is a part of the
// document root.
func (s *schema) prepare(root *schema) {
	if s == nil {
		return
	}
	for _, kind := range schemaTypes(s.Type) {
		if slices.Contains(s.kinds, kind) {
			continue
		}
		if s.kinds = append(s.kinds, kind); !slices.Contains(jsonTypes, kind) {
			break // an unknown type matches every value
		}
	}
	s.choices = slices.Concat(s.AnyOf, s.OneOf)
	if len(s.Enum) > 0 {
		s.allowed = make(map[string]bool, len(s.Enum))
		for _, one := range s.Enum {
			s.allowed[fmt.Sprint(one)] = true
		}
	}
	s.Required = withoutDuplicates(s.Required)
	s.resolved = root.find(s)
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

// find returns the target of the reference in part, within the document s. It
// returns part if there is no reference.
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

// target returns the schema itself or the target of its reference. It returns nil
// if any value is valid.
func (s *schema) target() *schema {
	if s == nil {
		return nil
	}
	return s.resolved
}

// jsonTypes lists the types of JSON schemas.
var jsonTypes = []string{"string", "integer", "number", "boolean", "null", "array", "object"}

// schemaTypes returns the type names in the keyword "type" of a schema.
func schemaTypes(t any) []string {
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

// withoutDuplicates removes duplicates from a list.
func withoutDuplicates(list []string) []string {
	seen := make(map[string]bool, len(list))
	return slices.DeleteFunc(list, func(s string) bool {
		before := seen[s]
		seen[s] = true
		return before
	})
}

func invalidSchemaError(err error) error {
	return brig.InvalidField("json_schema", "it is no JSON schema of a function").
		WithHint(`for example {"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}`).Because(err)
}

// objectKeys returns the distinct keys of a JSON object in document order.
func objectKeys(raw json.RawMessage) (out []string, err error) {
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
		var property json.RawMessage
		if err := d.Decode(&property); err != nil {
			return nil, fmt.Errorf("read a property: %w", err)
		}
	}
	return withoutDuplicates(out), nil
}
