package httpapi

import (
	"bytes"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// Constraint is the set of allowed values of a field of a wire type, as
// declared by the field's tags. The OpenAPI document uses the same tags:
//
//	minimum, maximum     of a number
//	minLength, maxLength of a text, in characters
//	minItems, maxItems   of a list, or of the fields of a map
//	pattern              of a text, from its beginning to its end
//	enum                 the values of a text, or of the elements of a list
//	items                the pattern of the elements of a list or a map
//	keys                 the pattern of the names of a map's fields
//
// A field without omitempty and omitzero is required.
type Constraint struct {
	Required             bool
	Minimum, Maximum     *float64
	MinLength, MaxLength *int
	MinItems, MaxItems   *int
	Pattern, Items, Keys *regexp.Regexp
	Enum                 []string
	doc                  string
}

var constraints sync.Map // maps reflect.Type to map[string]*Constraint

// Constraints returns the constraints of the fields of the struct t, and of the
// structs embedded in t, by their JSON names.
func Constraints(t reflect.Type) map[string]*Constraint {
	if known, ok := constraints.Load(t); ok {
		return known.(map[string]*Constraint)
	}
	out := map[string]*Constraint{}
	for f := range jsonFields(t) {
		if name := jsonName(f); name != "" && name != "-" {
			out[name] = parseConstraint(f)
		}
	}
	constraints.Store(t, out)
	return out
}

func parseConstraint(f reflect.StructField) *Constraint {
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	c := &Constraint{Required: !strings.Contains(options, "omit"), doc: f.Tag.Get("doc")}
	c.Minimum, c.Maximum = parseFloatTag(f, "minimum"), parseFloatTag(f, "maximum")
	c.MinLength, c.MaxLength = parseCount(f, "minLength"), parseCount(f, "maxLength")
	c.MinItems, c.MaxItems = parseCount(f, "minItems"), parseCount(f, "maxItems")
	c.Pattern, c.Items, c.Keys = parsePattern(f, "pattern"), parsePattern(f, "items"), parsePattern(f, "keys")
	if e := f.Tag.Get("enum"); e != "" {
		c.Enum = strings.Split(e, ",")
	}
	return c
}

// The functions below ignore invalid tags. The tags are constants, and a test
// reads all of them.

func parseFloatTag(f reflect.StructField, tag string) *float64 {
	v, err := strconv.ParseFloat(f.Tag.Get(tag), 64)
	if err != nil {
		return nil
	}
	return &v
}

func parseCount(f reflect.StructField, tag string) *int {
	v, err := strconv.Atoi(f.Tag.Get(tag))
	if err != nil {
		return nil
	}
	return &v
}

func parsePattern(f reflect.StructField, tag string) *regexp.Regexp {
	if p := f.Tag.Get(tag); p != "" {
		return regexp.MustCompile(p)
	}
	return nil
}

// CheckZero returns an error for a zero value that c does not allow and that
// handlers cannot distinguish from a missing field: an empty string, list or
// map, or 0. raw is JSON of the field's type. The handlers and the engine check
// all other values, with more specific errors.
func (c *Constraint) CheckZero(raw []byte) *brig.Error {
	raw = bytes.TrimSpace(raw)
	empty := brig.Errorf(brig.InvalidArgument, "is empty").WithHint("%s", c.doc)
	if !c.Required {
		empty.Hint = "leave it out, or give a value"
	}
	switch raw[0] {
	case '"':
		if len(raw) > 2 {
			return c.checkZeroSize(raw)
		}
		if c.MinLength != nil && *c.MinLength > 0 || c.Pattern != nil && !c.Pattern.MatchString("") || c.Enum != nil {
			return empty
		}
	case '[', '{':
		if v := (checker{scanner: scanner{data: raw, pos: 1}}); c.MinItems != nil && *c.MinItems > 0 && (v.peek() == ']' || v.peek() == '}') {
			return empty
		}
	default:
		if n, err := strconv.ParseFloat(string(raw), 64); err == nil && n == 0 && c.Minimum != nil && *c.Minimum > 0 {
			return brig.Errorf(brig.InvalidArgument, "must not be 0").WithHint("%s", c.doc)
		}
	}
	return nil
}

// checkZeroSize rejects a size of 0 that is encoded as a string, just as CheckZero
// rejects the number 0.
func (c *Constraint) checkZeroSize(raw []byte) *brig.Error {
	if c.Minimum == nil || *c.Minimum <= 0 {
		return nil
	}
	s, _ := decodeString(raw)
	if n, err := v1.ParseSize(s); err == nil && n == 0 {
		return brig.Errorf(brig.InvalidArgument, "must not be 0").WithHint("%s", c.doc)
	}
	return nil
}
