package sqlite

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// A value is stored as a JSON document, which an operator can read and query, and a blob that
// holds the value's byte slices. The byte slices are separate because outputs and artifacts may
// be large, and base64 would enlarge them. In the document, each byte slice is a reference
// "[offset,length]" into the blob.
//
// Plain JSON would not preserve all values that sandboxed code can produce. Examples are
// strings that are not valid UTF-8, the white space of a JSON value, and the difference between
// nil and null. Therefore, rewrite transforms every document when it is written and when it is
// read.

// encode returns v as a document and its blob.
func encode(v any) (doc string, data []byte, err error) {
	data = []byte{} // not nil, because nil would be stored as NULL
	out := rewrite(reflect.ValueOf(v), leafFuncs{
		text: escape,
		bytes: func(b []byte) ([]byte, error) {
			ref := fmt.Appendf(nil, "[%d,%d]", len(data), len(b))
			data = append(data, b...)
			return ref, nil
		},
	}, &err)
	if err != nil {
		return "", nil, err
	}
	b, err := json.Marshal(out.Interface())
	return string(b), data, err
}

// decode returns the value that was passed to encode. Its byte slices refer to
// data.
func decode[T any](doc string, data []byte) (*T, error) { return decodeLost[T](doc, data, false) }

// decodeLost is like decode, but if lost is set, the blob no longer exists and the byte slices
// are nil.
func decodeLost[T any](doc string, data []byte, lost bool) (*T, error) {
	v := new(T)
	if err := json.Unmarshal([]byte(doc), v); err != nil {
		return nil, err
	}
	var err error
	out := rewrite(reflect.ValueOf(v), leafFuncs{
		text: unescape,
		bytes: func(ref []byte) ([]byte, error) {
			if string(ref) == "null" { // a nil json.RawMessage
				return nil, nil
			}
			var at [2]int
			if err := json.Unmarshal(ref, &at); err != nil {
				return nil, fmt.Errorf("parse reference %q: %w", ref, err)
			}
			from, n := at[0], at[1]
			if lost {
				return nil, nil
			}
			if from < 0 || n < 0 || from > len(data) || n > len(data)-from {
				return nil, fmt.Errorf("reference %q is outside of %d bytes", ref, len(data))
			}
			if n == 0 {
				return []byte{}, nil
			}
			return data[from : from+n : from+n], nil
		},
	}, &err)
	if err != nil {
		return nil, err
	}
	return out.Interface().(*T), nil
}

// leafFuncs holds the functions that rewrite applies to the strings and byte slices of a value.
type leafFuncs struct {
	text  func(string) (string, error)
	bytes func([]byte) ([]byte, error)
}

// rewrite returns a copy of v with rewritten leaves and with times in UTC. It
// stores the first error in *err.
func rewrite(v reflect.Value, f leafFuncs, err *error) reflect.Value {
	fail := func(e error) {
		if *err == nil {
			*err = e
		}
	}
	out := reflect.New(v.Type()).Elem()
	switch k := v.Kind(); {
	case v.Type() == reflect.TypeFor[time.Time]():
		out.Set(reflect.ValueOf(v.Interface().(time.Time).UTC()))
	case k == reflect.String:
		s, e := f.text(v.String())
		fail(e)
		out.SetString(s)
	case k == reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(rewrite(v.Field(i), f, err))
		}
	case (k == reflect.Pointer || k == reflect.Slice || k == reflect.Map) && v.IsNil():
	case k == reflect.Pointer:
		out.Set(reflect.New(v.Type().Elem()))
		out.Elem().Set(rewrite(v.Elem(), f, err))
	case k == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		b, e := f.bytes(v.Bytes())
		fail(e)
		out.SetBytes(b)
	case k == reflect.Slice:
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(rewrite(v.Index(i), f, err))
		}
	case k == reflect.Map:
		out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
		for key, val := range v.Seq2() {
			out.SetMapIndex(rewrite(key, f, err), rewrite(val, f, err))
		}
	default:
		out.Set(v)
	}
	return out
}

// mark is the prefix of an escaped string. A string that begins with mark is
// also escaped.
const mark = "\x00"

// escape encodes s so that JSON preserves it.
func escape(s string) (string, error) {
	if utf8.ValidString(s) && !strings.HasPrefix(s, mark) {
		return s, nil
	}
	return mark + base64.StdEncoding.EncodeToString([]byte(s)), nil
}

// unescape is the inverse of escape.
func unescape(s string) (string, error) {
	armored, ok := strings.CutPrefix(s, mark)
	if !ok {
		return s, nil
	}
	b, err := base64.StdEncoding.DecodeString(armored)
	if err != nil {
		return "", fmt.Errorf("disarm string: %w", err)
	}
	return string(b), nil
}
