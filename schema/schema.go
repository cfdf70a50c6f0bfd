// Package schema derives the description of a configuration from its struct:
// the fields and their allowed values. The JSON Schema, the console's forms,
// input validation and the masking of secrets all use this description.
//
// A field is a string, bool, int, float64 or []string with a json tag. Further
// tags are:
//
//	title:"Endpoint"             the label
//	doc:"Where it listens."      a sentence
//	placeholder:"http://…"
//	min:"5" max:"300"            for numbers
//	options:"us,eu"              the allowed values
//	form:"required,secret,destination,multiline,readonly"
//
// The struct that Driver.Config returns contains the defaults.
package schema

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
)

// Fields lists the fields of a configuration in order, given a pointer to a
// struct with its defaults.
func Fields(config any) []brig.ConfigField {
	v := reflect.Indirect(reflect.ValueOf(config))
	var out []brig.ConfigField
	for i := range v.NumField() {
		if f, ok := field(v.Type().Field(i), v.Field(i)); ok {
			out = append(out, f)
		}
	}
	return out
}

func field(t reflect.StructField, v reflect.Value) (brig.ConfigField, bool) {
	name, _, _ := strings.Cut(t.Tag.Get("json"), ",")
	if name == "" || name == "-" {
		return brig.ConfigField{}, false
	}
	form := strings.Split(t.Tag.Get("form"), ",")
	f := brig.ConfigField{
		Name: name, Type: typeOf(v.Kind()), Label: t.Tag.Get("title"), Doc: t.Tag.Get("doc"), Placeholder: t.Tag.Get("placeholder"),
		Required: slices.Contains(form, "required"), Secret: slices.Contains(form, "secret"), Destination: slices.Contains(form, "destination"),
		Multiline: slices.Contains(form, "multiline"), ReadOnly: slices.Contains(form, "readonly"),
		Min: parseNumber(t.Tag.Get("min")), Max: parseNumber(t.Tag.Get("max")),
	}
	f.FromEnvironment = f.Secret && !v.IsZero()
	if f.Label == "" {
		f.Label = name
	}
	if o := t.Tag.Get("options"); o != "" {
		f.Options = strings.Split(o, ",")
	}
	if !f.Secret && !v.IsZero() || v.Kind() == reflect.Bool {
		f.Default = v.Interface()
	}
	return f, true
}

func typeOf(k reflect.Kind) string {
	switch k {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "array"
	}
	return "string"
}

func parseNumber(s string) *float64 {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil
	}
	return &n
}

// JSON returns the JSON Schema (2020-12) of a configuration. The additional key
// "order" lists the fields in display order.
func JSON(fields []brig.ConfigField) map[string]any {
	properties, order := map[string]any{}, []string{}
	required := []string{}
	for _, f := range fields {
		p := map[string]any{"type": f.Type, "title": f.Label}
		set := func(key string, v any, ok bool) {
			if ok {
				p[key] = v
			}
		}
		set("description", f.Doc, f.Doc != "")
		set("default", f.Default, f.Default != nil)
		set("enum", f.Options, len(f.Options) > 0 && f.Type == "string")
		set("minimum", f.Min, f.Min != nil)
		set("maximum", f.Max, f.Max != nil)
		set("examples", []string{f.Placeholder}, f.Placeholder != "")
		set("format", "password", f.Secret)
		set("writeOnly", true, f.Secret)
		set("readOnly", true, f.ReadOnly)
		set("contentMediaType", "text/plain", f.Multiline)
		set("items", map[string]any{"type": "string"}, f.Type == "array")
		properties[f.Name] = p
		order = append(order, f.Name)
		if f.Required {
			required = append(required, f.Name)
		}
	}
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": false,
		"properties": properties, "required": required, "order": order,
	}
}
