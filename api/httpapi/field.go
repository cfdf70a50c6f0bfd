package httpapi

import (
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// fieldType returns the type of t's field with this JSON name, or nil.
func fieldType(t reflect.Type, name string) reflect.Type {
	for f := range jsonFields(t) {
		if jsonName(f) == name {
			return f.Type
		}
	}
	return nil
}

// jsonFields yields t's fields, and those of the structs that are embedded in t.
func jsonFields(t reflect.Type) iter.Seq[reflect.StructField] {
	return func(yield func(reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(t) {
			if f.Anonymous && jsonName(f) == "" {
				continue // VisibleFields has its fields, too
			}
			if !yield(f) {
				return
			}
		}
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// unknownFieldError returns an error for a field that t does not have, with a
// suggestion.
func unknownFieldError(t reflect.Type, key string) *brig.Error {
	var names []string
	for f := range jsonFields(t) {
		names = append(names, jsonName(f))
	}
	e := brig.Errorf(brig.InvalidArgument, "unknown field %q", clip(key))
	if near := Nearest(key, names); near != "" {
		return e.WithHint("did you mean %q?", near)
	}
	if len(names) == 0 {
		return e.WithHint("no fields are known here")
	}
	slices.Sort(names)
	return e.WithHint("known fields: %s", strings.Join(names, ", "))
}

// Nearest returns the name closest to a mistyped word, or an empty string if
// none is close.
func Nearest(word string, names []string) string {
	word = strings.ToLower(word)
	if len(word) > 64 {
		return ""
	}
	best, least := "", 1+len(word)/3
	for _, name := range names {
		if d := Distance(word, name); d <= least {
			best, least = name, d-1
		}
	}
	return best
}

// Distance returns how many letters must be inserted, removed or changed to
// turn a into b.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
