package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// maxDepth limits the nesting of a document with named fields.
const maxDepth = 64

// shaper is implemented by wire types with custom JSON formats. Shape returns a
// value of the expected type for a value that begins with first.
type shaper interface{ Shape(first byte) any }

// Decode strictly decodes the JSON document data into v, a pointer to a struct.
// Unknown and repeated fields, values of another type or out of range, invalid
// Unicode and data after the document are errors. Each error names the field by
// its path in the document ("command[2]"). It never contains a value, because
// the value may be a secret. A field may be null, which is the same as a
// missing field.
func Decode(data []byte, v any) error { return decode(data, v, false) }

// DecodeDescribed is like Decode, for documents that an OpenAPI document describes.
// No field may be null, required fields must be present, and a field may be
// empty only if its tags allow that (see Constraint).
func DecodeDescribed(data []byte, v any) error { return decode(data, v, true) }

func decode(data []byte, v any, described bool) error {
	if err := CheckShape(data); err != nil {
		return err
	}
	if !json.Valid(data) {
		return syntaxError(data, json.Unmarshal(data, new(json.RawMessage)))
	}
	c := checker{scanner: scanner{data: data}, described: described}
	if c.peek() != '{' {
		return brig.Errorf(brig.InvalidArgument, "the body must be a JSON object")
	}
	if err := c.checkValue(reflect.TypeOf(v).Elem(), 0); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		// The check above should already have found every error.
		return brig.Errorf(brig.InvalidArgument, "the body does not match the request").Because(err)
	}
	return nil
}

// checker compares a document with the type into which it will be decoded. Its
// methods return errors with fields relative to the value. The full path is
// built only for an error, so that valid documents have no overhead.
type checker struct {
	scanner
	described bool // the rules of DecodeDescribed apply
}

// checkValue checks the next value against t. A nil t allows any value.
func (c *checker) checkValue(t reflect.Type, depth int) *brig.Error {
	if depth > maxDepth {
		return brig.Errorf(brig.InvalidArgument, "is nested deeper than %d levels", maxDepth)
	}
	first, own := c.peek(), t
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
		own = t
	}
	if t != nil {
		if s, ok := reflect.Zero(t).Interface().(shaper); ok {
			t = reflect.TypeOf(s.Shape(first))
		}
	}
	if t == reflect.TypeFor[json.RawMessage]() {
		t, own = nil, nil
	}
	switch first {
	case '{':
		return c.checkObject(t, depth)
	case '[':
		return c.checkArray(t, depth)
	}
	raw := c.readScalar()
	if c.described && t != nil && (t.Kind() == reflect.Int || t.Kind() == reflect.Int64 || t.Kind() == reflect.Uint32) {
		raw = withoutFraction(raw)
	}
	if err := checkScalar(t, raw); err != nil || own == t {
		return err
	}
	if err := json.Unmarshal(raw, reflect.New(own).Interface()); err != nil {
		return brig.Errorf(brig.InvalidArgument, "%v", err)
	}
	return nil
}

// withoutFraction replaces a fraction of zeros in the number raw with spaces in
// place, because 30.0 is an integer in JSON Schema.
func withoutFraction(raw []byte) []byte {
	i := bytes.IndexByte(raw, '.')
	if i < 0 || len(bytes.Trim(raw[i+1:], "0")) > 0 {
		return raw
	}
	for j := i; j < len(raw); j++ {
		raw[j] = ' '
	}
	return raw[:i]
}

func (c *checker) checkArray(t reflect.Type, depth int) *brig.Error {
	if t != nil {
		if t.Kind() != reflect.Slice || t.Elem().Kind() == reflect.Uint8 {
			return typeError(t)
		}
		t = t.Elem()
	}
	c.skip('[')
	for i := 0; !c.skip(']'); i++ {
		if err := c.checkValue(t, depth+1); err != nil {
			return prependPath("["+strconv.Itoa(i)+"]", err)
		}
		c.skip(',')
	}
	return nil
}

func (c *checker) checkObject(t reflect.Type, depth int) *brig.Error {
	if t != nil && t.Kind() != reflect.Map && t.Kind() != reflect.Struct {
		return typeError(t)
	}
	seen := map[string]bool{}
	for c.skip('{'); !c.skip('}'); c.skip(',') {
		c.peek()
		key, ok := decodeString(c.readScalar())
		if !ok {
			return brig.Errorf(brig.InvalidArgument, "has a key that is not UTF-8")
		}
		if seen[key] {
			return prependPath(clip(key), brig.Errorf(brig.InvalidArgument, "is given twice"))
		}
		seen[key] = true
		c.skip(':')
		elem := t
		switch {
		case t == nil:
		case t.Kind() == reflect.Map:
			elem = t.Elem()
		default:
			if elem = fieldType(t, key); elem == nil {
				return prependPath(clip(key), unknownFieldError(t, key))
			}
			if c.peek() == 'n' {
				c.readScalar()
				if c.described {
					return prependPath(clip(key), brig.Errorf(brig.InvalidArgument, "must not be null").WithHint("leave it out"))
				}
				continue
			}
		}
		start := c.pos
		if err := c.checkValue(elem, depth+1); err != nil {
			return prependPath(clip(key), err)
		}
		if c.described && t != nil && t.Kind() == reflect.Struct {
			if err := Constraints(t)[key].CheckZero(c.data[start:c.pos]); err != nil {
				return prependPath(clip(key), err)
			}
		}
	}
	if c.described && t != nil && t.Kind() == reflect.Struct {
		return checkRequired(t, seen)
	}
	return nil
}

// checkRequired returns an error for the first required field of t that was not
// seen.
func checkRequired(t reflect.Type, seen map[string]bool) *brig.Error {
	known := Constraints(t)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if known[name].Required && !seen[name] {
			return prependPath(name, brig.Errorf(brig.InvalidArgument, "is missing").WithHint("%s", known[name].doc))
		}
	}
	return nil
}

// prependPath prepends a step to the field path of err.
func prependPath(step string, err *brig.Error) *brig.Error {
	if err.Field != "" && err.Field[0] != '[' {
		step += "."
	}
	err.Field = step + err.Field
	return err
}

// clip shortens a key for use in an error.
func clip(key string) string {
	const limit = 64
	if len(key) <= limit {
		return key
	}
	end := limit
	for !utf8.RuneStart(key[end]) {
		end--
	}
	return key[:end] + "…"
}

// checkScalar checks a string, number or literal against t.
func checkScalar(t reflect.Type, raw []byte) *brig.Error {
	if raw[0] == '"' {
		plain, ok := checkUnicode(raw)
		if !ok {
			return brig.Errorf(brig.InvalidArgument, "is not UTF-8").WithHint("send bytes in the field that ends in _b64, where there is one")
		}
		if t != nil && t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
			encoded := raw[1 : len(raw)-1]
			if !plain {
				s, _ := decodeString(raw)
				encoded = []byte(s)
			}
			// The decoded bytes are discarded. They are decoded again after the
			// check.
			if _, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, bytes.NewReader(encoded))); err != nil {
				return brig.Errorf(brig.InvalidArgument, "is not base64")
			}
			return nil
		}
	}
	if t == nil {
		return nil
	}
	switch k := t.Kind(); {
	case k == reflect.String && raw[0] == '"', k == reflect.Bool && (raw[0] == 't' || raw[0] == 'f'):
		return nil
	case (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9') && k == reflect.Float64:
		if f, err := strconv.ParseFloat(string(raw), 64); err != nil || math.IsInf(f, 0) {
			return brig.Errorf(brig.InvalidArgument, "is out of range")
		}
		return nil
	case (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9') && (k == reflect.Int || k == reflect.Int64):
		if _, err := strconv.ParseInt(string(raw), 10, t.Bits()); errors.Is(err, strconv.ErrRange) {
			return brig.Errorf(brig.InvalidArgument, "is out of range")
		} else if err == nil {
			return nil
		}
	case (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9') && k == reflect.Uint32:
		if _, err := strconv.ParseUint(string(raw), 10, t.Bits()); err == nil {
			return nil
		} else if _, err := strconv.ParseInt(string(raw), 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
			return brig.Errorf(brig.InvalidArgument, "is out of range")
		}
	}
	return typeError(t)
}

// typeError returns an error that names the expected type.
func typeError(t reflect.Type) *brig.Error {
	want := "an object"
	switch t.Kind() {
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Float64:
		want = "a number"
	case reflect.Int, reflect.Int64, reflect.Uint32:
		want = "a whole number"
	case reflect.Slice:
		if want = "a list"; t.Elem().Kind() == reflect.Uint8 {
			want = "a string of base64"
		}
	}
	return brig.Errorf(brig.InvalidArgument, "must be %s", want)
}
