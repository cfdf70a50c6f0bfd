package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"
)

// filler sets every field of a value, so that the suite covers new fields automatically. Two
// fillers produce equal values.
type filler struct {
	t     *testing.T
	n     int  // makes each value different
	empty bool // fill with empty values that are not nil
}

// filled returns a T with every field set.
func filled[T any](t *testing.T, empty bool) *T {
	v := new(T)
	f := &filler{t: t, empty: empty}
	f.fill(reflect.ValueOf(v).Elem())
	return v
}

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		if !f.empty {
			v.Set(reflect.ValueOf(birth.Add(time.Duration(f.n))))
		}
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		text := fmt.Sprintf("{\"b\" : %d,\n \"a\":\"<&>\"}", f.n) // the formatting must be preserved, too
		if f.empty {
			text = "null" // null differs from nil
		}
		v.SetBytes([]byte(text))
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		v.SetBytes([]byte{})
		if !f.empty {
			v.SetBytes(append(everyByte(), fmt.Sprint(f.n)...))
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		for range f.count() {
			e := reflect.New(v.Type().Elem()).Elem()
			f.fill(e)
			v.Set(reflect.Append(v, e))
		}
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range f.count() {
			key, val := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key)
			f.fill(val)
			v.SetMapIndex(key, val)
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") == "-" {
				continue // this field is not stored
			}
			f.fill(v.Field(i))
		}
	case f.empty:
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprintf("s%d é <&> \"\\ \u2028", f.n))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(int64(f.n) + 1<<v.Type().Bits()/3)
	case v.CanUint():
		v.SetUint(uint64(f.n) + 1<<(v.Type().Bits()-1))
	case v.CanFloat():
		v.SetFloat(float64(f.n) + 0.1)
	default:
		f.t.Fatalf("storetest cannot fill a %s", v.Type())
	}
}

func (f *filler) count() int {
	if f.empty {
		return 0
	}
	return 2
}

// everyByte returns each byte once.
func everyByte() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// mutate modifies everything reachable from v, to detect shared memory.
func mutate(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			mutate(v.Elem())
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		copy(v.Bytes(), bytes.Repeat([]byte("#"), v.Len()))
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			mutate(v.Index(i))
		}
	case v.Kind() == reflect.Map:
		v.Clear()
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			mutate(v.Field(i))
		}
	default:
		v.SetZero()
	}
}
