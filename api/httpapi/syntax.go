package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/brig-run/brig"
)

// syntaxError returns an error with the position at which data is no longer
// valid JSON.
func syntaxError(data []byte, err error) error {
	e := brig.InvalidField(findBrokenField(data), "the body is not one JSON document").Because(err)
	if s, ok := errors.AsType[*json.SyntaxError](err); ok && s.Offset > 0 {
		e.Message += ": see byte " + strconv.FormatInt(s.Offset, 10)
	}
	return e
}

// step is one level of the path to a token.
type step struct {
	object bool
	key    string
	index  int
	value  bool // in an object: the next token is a value and not a key
}

// findBrokenField returns the path of the field in which data is no longer valid
// JSON.
func findBrokenField(data []byte) string {
	var path []step
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // otherwise a number out of range would be an error
	for len(path) <= maxDepth {
		token, err := d.Token()
		if err != nil {
			break
		}
		if c, ok := token.(json.Delim); ok && (c == '{' || c == '[') {
			path = append(path, step{object: c == '{'})
			continue
		} else if ok {
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			return "" // after the document
		}
		switch last := &path[len(path)-1]; {
		case !last.object:
			last.index++
		case last.value:
			last.value = false
		default:
			last.key, last.value = token.(string), true
		}
	}
	field := &brig.Error{}
	for i := len(path) - 1; i >= 0; i-- {
		switch s := path[i]; {
		case !s.object:
			_ = prependPath("["+strconv.Itoa(s.index)+"]", field)
		case s.value:
			_ = prependPath(clip(s.key), field)
		}
	}
	return field.Field
}
