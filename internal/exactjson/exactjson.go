// Package exactjson decodes JSON only if other parsers interpret the document in the same way.
// By contrast, encoding/json matches {"ISS":…} to the field iss with Unicode case folding, and
// uses the last of two fields with the same name. A program that checked or signed the same
// document may have used the other field.
package exactjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Unmarshal is like json.Unmarshal, but rejects repeated names in an object,
// and names that differ from a field's name only in case. It ignores names that
// match no field.
func Unmarshal(data []byte, v any) error {
	if json.Valid(data) {
		d := json.NewDecoder(bytes.NewReader(data))
		if err := check(d, reflect.TypeOf(v)); err != nil {
			return err
		}
	}
	return json.Unmarshal(data, v)
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// check checks the next value of a valid document. The type t may be nil if the
// value has no fields to check.
func check(d *json.Decoder, t reflect.Type) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t != nil && (t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler)) {
		t = nil
	}
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		return checkObject(d, t)
	case json.Delim('['):
		var of reflect.Type
		if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
			of = t.Elem()
		}
		for d.More() {
			if err := check(d, of); err != nil {
				return err
			}
		}
		_, err := d.Token()
		return err
	}
	return nil
}

func checkObject(d *json.Decoder, t reflect.Type) error {
	fields := map[string]reflect.Type{}
	if t != nil && t.Kind() == reflect.Struct {
		fieldsOf(t, fields)
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		if seen[name] {
			return fmt.Errorf("the field %q is given twice", clip(name))
		}
		seen[name] = true
		of, known := fields[name]
		if !known {
			for field := range fields {
				if strings.EqualFold(field, name) {
					return fmt.Errorf("there is no field %q, but %q", clip(name), field)
				}
			}
		}
		if t != nil && t.Kind() == reflect.Map {
			of = t.Elem()
		}
		if err := check(d, of); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// fieldsOf lists the names that encoding/json uses for the fields of a struct.
func fieldsOf(t reflect.Type, out map[string]reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("json")
		name, _, _ := strings.Cut(tag, ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case tag == "-":
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			fieldsOf(inner, out)
		case !f.IsExported():
		case tagged && name != "":
			out[name] = f.Type
		default:
			out[f.Name] = f.Type
		}
	}
}

func clip(s string) string {
	if len(s) > 80 {
		s = s[:80]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
