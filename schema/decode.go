package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
)

// Decode decodes an administrator's configuration into a pointer to a struct
// that contains the defaults. It returns all errors in the configuration. An
// omitted or null field keeps its default.
func Decode(raw []byte, into any) []brig.FieldError {
	var values map[string]json.RawMessage
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("{}")
	}
	if err := json.Unmarshal(raw, &values); err != nil || values == nil {
		return []brig.FieldError{{Message: "the configuration is not a JSON object"}}
	}
	fields := Fields(into)
	var invalid []brig.FieldError
	for _, f := range fields {
		v, ok := values[f.Name]
		delete(values, f.Name)
		if ok && string(v) == "null" {
			ok = false
		}
		if !ok && hasDefault(into, f.Name) {
			continue // the environment may also provide a secret
		}
		if reason := checkField(f, v, ok); reason != "" {
			invalid = append(invalid, brig.FieldError{Field: f.Name, Message: reason})
			continue
		}
		if !ok {
			continue
		}
		// Decode each field separately, so that the error names the field.
		one, err := json.Marshal(map[string]json.RawMessage{f.Name: v})
		if err == nil {
			err = json.Unmarshal(one, into)
		}
		if err != nil {
			invalid = append(invalid, brig.FieldError{Field: f.Name, Message: typeMessage(f)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		name = brig.Clip(name, 60)
		invalid = append(invalid, brig.FieldError{Field: name, Message: fmt.Sprintf("Unknown field '%s'", name)})
	}
	if rules, ok := into.(brig.ConfigRules); ok && len(invalid) == 0 {
		invalid = rules.Validate()
	}
	return invalid
}

// hasDefault reports whether a field has a default.
func hasDefault(config any, name string) bool {
	v := reflect.Indirect(reflect.ValueOf(config))
	for i := range v.NumField() {
		if tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); tag == name {
			return !v.Field(i).IsZero()
		}
	}
	return false
}

// checkField returns an error message about the value of one field, or "". The
// wording matches RAGFlow's own checks of a provider.
func checkField(f brig.ConfigField, v json.RawMessage, present bool) string {
	if !present {
		if f.Required && f.Default == nil {
			return fmt.Sprintf("Required field '%s' is missing", f.Name)
		}
		return ""
	}
	switch f.Type {
	case "string":
		var s string
		if json.Unmarshal(v, &s) != nil {
			return typeMessage(f)
		}
		if f.Required && strings.TrimSpace(s) == "" {
			return fmt.Sprintf("Required field '%s' is missing", f.Name)
		}
		if len(f.Options) > 0 && s != "" && !slices.Contains(f.Options, s) {
			return fmt.Sprintf("Field '%s' must be one of: %s", f.Name, strings.Join(f.Options, ", "))
		}
	case "integer", "number":
		var n float64
		if json.Unmarshal(v, &n) != nil || f.Type == "integer" && n != math.Trunc(n) {
			return typeMessage(f)
		}
		if f.Min != nil && n < *f.Min {
			return fmt.Sprintf("Field '%s' must be >= %s", f.Name, formatNumber(*f.Min))
		}
		if f.Max != nil && n > *f.Max {
			return fmt.Sprintf("Field '%s' must be <= %s", f.Name, formatNumber(*f.Max))
		}
	case "boolean":
		if b := string(v); b != "true" && b != "false" {
			return typeMessage(f)
		}
	case "array":
		var list []string
		if json.Unmarshal(v, &list) != nil {
			return typeMessage(f)
		}
	}
	return ""
}

func typeMessage(f brig.ConfigField) string {
	what := map[string]string{
		"integer": "an integer", "number": "a number", "boolean": "a boolean", "string": "a string", "array": "a list of strings",
	}[f.Type]
	return fmt.Sprintf("Field '%s' must be %s", f.Name, what)
}

func formatNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
