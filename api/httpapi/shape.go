package httpapi

import "github.com/brig-run/brig"

// Limits of one JSON document. Decoding many small values needs much more
// memory than their encoding: an empty object needs two bytes on the wire and
// about a hundred in memory.
const (
	maxLevels = 128     // levels of arrays and objects
	maxValues = 200_000 // elements of arrays and members of objects in total
	maxKeys   = 20_000  // members of one object
)

// CheckShape returns an error if the JSON document data exceeds the limits
// maxLevels, maxValues or maxKeys. It does not allocate. It treats invalid JSON
// in the same way.
func CheckShape(data []byte) error {
	_, err := measureJSON(data)
	return err
}

// CountElements returns the number of elements if the JSON document data is an
// array, otherwise 0. It returns the same errors as CheckShape.
func CountElements(data []byte) (int, error) { return measureJSON(data) }

// level is an open array or object. The outermost level is the document.
type level struct {
	object  bool
	members int // number of members so far
	comma   bool
}

// countMember counts a member of l.
func (l *level) countMember() {
	if l.members == 0 || l.comma {
		l.members++
		l.comma = false
	}
}

func measureJSON(data []byte) (elements int, err error) {
	var open [maxLevels + 1]level
	depth, values, quoted := 0, 0, false
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case quoted && c == '\\':
			i++
		case quoted:
			quoted = c != '"'
		case c == ' ', c == '\t', c == '\n', c == '\r', c == ':':
		case c == '}', c == ']':
			if depth == 1 && !open[1].object {
				elements = open[1].members
			}
			depth = max(0, depth-1)
		case c == ',':
			values++
			open[depth].comma = true
		case c == '{', c == '[':
			values++
			open[depth].countMember()
			if depth++; depth > maxLevels {
				return 0, errTooLarge("it is nested deeper than %d levels", maxLevels)
			}
			open[depth] = level{object: c == '{'}
		default:
			open[depth].countMember()
			quoted = c == '"'
		}
		switch l := open[depth]; {
		case values > maxValues:
			return 0, errTooLarge("it has more than %d values", maxValues)
		case l.object && l.members > maxKeys:
			return 0, errTooLarge("an object in it has more than %d members", maxKeys)
		}
	}
	return elements, nil
}

func errTooLarge(format string, n int) *brig.Error {
	return brig.Errorf(brig.InvalidArgument, "the body is too large to decode: "+format, n).
		WithHint("send less at a time, and put data into files")
}
