package door

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strconv"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// maxDepth bounds how deep a document may be nested.
const maxDepth = 64

// shaper is implemented by wire values with forms of their own: given the
// first byte of the value it returns a value of the type that is to be there.
type shaper interface{ Shape(first byte) any }

// Decode reads the JSON document data into v, a pointer to a struct. It is
// strict: unknown fields, fields given twice, values of another type or out
// of range, text that is not Unicode and anything after the document are
// errors that name the field, by its path in the document ("command[2]"). An
// error never repeats a value, for it may be a secret. A field may be null,
// which is as if it were not there.
func Decode(data []byte, v any) error {
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return syntaxError(data, err)
	}
	c := checker{scanner: scanner{data: data}}
	if c.next() != '{' {
		return brig.Errorf(brig.InvalidArgument, "the body must be a JSON object")
	}
	if err := c.value(reflect.TypeOf(v).Elem(), 0); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		// The check above is meant to find everything first.
		return brig.Errorf(brig.InvalidArgument, "the body does not fit this request").Because(err)
	}
	return nil
}

// checker compares a document with the type that it is to be read into. Its
// methods return errors whose fields are relative to the value; the path is
// put together on the way back, so that a document without errors costs none.
type checker struct{ scanner }

// value checks the value that is next against t, or anything for nil.
func (c *checker) value(t reflect.Type, depth int) *brig.Error {
	if depth > maxDepth {
		return brig.Errorf(brig.InvalidArgument, "is nested deeper than %d levels", maxDepth)
	}
	first, own := c.next(), t
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
		return c.object(t, depth)
	case '[':
		return c.array(t, depth)
	}
	raw := c.scalar()
	if err := scalar(t, raw); err != nil || own == t {
		return err
	}
	if err := json.Unmarshal(raw, reflect.New(own).Interface()); err != nil {
		return brig.Errorf(brig.InvalidArgument, "%v", err)
	}
	return nil
}

func (c *checker) array(t reflect.Type, depth int) *brig.Error {
	if t != nil {
		if t.Kind() != reflect.Slice || t.Elem().Kind() == reflect.Uint8 {
			return mismatch(t)
		}
		t = t.Elem()
	}
	c.skip('[')
	for i := 0; !c.skip(']'); i++ {
		if err := c.value(t, depth+1); err != nil {
			return at("["+strconv.Itoa(i)+"]", err)
		}
		c.skip(',')
	}
	return nil
}

func (c *checker) object(t reflect.Type, depth int) *brig.Error {
	if t != nil && t.Kind() != reflect.Map && t.Kind() != reflect.Struct {
		return mismatch(t)
	}
	seen := map[string]bool{}
	for c.skip('{'); !c.skip('}'); c.skip(',') {
		c.next()
		key, ok := text(c.scalar())
		if !ok {
			return brig.Errorf(brig.InvalidArgument, "has a key that is not UTF-8")
		}
		if seen[key] {
			return at(clip(key), brig.Errorf(brig.InvalidArgument, "is given twice"))
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
				return at(clip(key), unknown(t, key))
			}
			if c.next() == 'n' {
				c.scalar()
				continue
			}
		}
		if err := c.value(elem, depth+1); err != nil {
			return at(clip(key), err)
		}
	}
	return nil
}

// at puts a step before the path of the field that err is about.
func at(step string, err *brig.Error) *brig.Error {
	if err.Field != "" && err.Field[0] != '[' {
		step += "."
	}
	err.Field = step + err.Field
	return err
}

// clip bounds what an error repeats of a key.
func clip(key string) string {
	const most = 64
	if len(key) <= most {
		return key
	}
	end := most
	for !utf8.RuneStart(key[end]) {
		end--
	}
	return key[:end] + "…"
}

// scalar checks a string, number or word against t.
func scalar(t reflect.Type, raw []byte) *brig.Error {
	if raw[0] == '"' {
		s, ok := text(raw)
		if !ok {
			return brig.Errorf(brig.InvalidArgument, "is not UTF-8").WithHint("send bytes in the field that ends in _b64, where there is one")
		}
		if t != nil && t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
			if _, err := base64.StdEncoding.DecodeString(s); err != nil {
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
	}
	return mismatch(t)
}

// mismatch says what ought to stand where something else does.
func mismatch(t reflect.Type) *brig.Error {
	want := "an object"
	switch t.Kind() {
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Float64:
		want = "a number"
	case reflect.Int, reflect.Int64:
		want = "a whole number"
	case reflect.Slice:
		if want = "a list"; t.Elem().Kind() == reflect.Uint8 {
			want = "a string of base64"
		}
	}
	return brig.Errorf(brig.InvalidArgument, "must be %s", want)
}
