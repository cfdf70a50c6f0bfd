package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// ConvertArguments converts arguments, a JSON object, to the types in the schema. It
// converts a string if the string represents a value of the type. It drops
// arguments that are not in the schema, because agents add arguments of their own.
func (s *Schema) ConvertArguments(raw json.RawMessage) (json.RawMessage, error) {
	args, err := parseObject(raw)
	if err != nil || s == nil {
		return raw, err
	}
	c := coercer{remainingWork: minWork + 2*len(raw)}
	out := map[string]any{}
	for _, name := range s.Parameters {
		v, ok := args[name]
		if !ok {
			continue
		}
		var invalid *mismatch
		if out[name], invalid = c.coerceValue(v, s.root.Properties[name], 0); invalid != nil {
			return nil, invalid.addField(name).err()
		}
	}
	for _, name := range s.root.Required {
		_, ok := out[name]
		if _, known := s.root.Properties[name]; known && !ok && !isCallerArgument(name) {
			return nil, brig.InvalidField("args."+name, "the function needs it").WithHint("give every argument that the schema requires")
		}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode arguments: %w", err)
	}
	return b, nil
}

// isCallerArgument reports whether the caller of the tool supplies the argument,
// and not the agent.
func isCallerArgument(name string) bool { return name == "agent_state" || name == "request_heartbeat" }

// parseObject parses a JSON object. Numbers keep their original text.
func parseObject(raw json.RawMessage) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var args map[string]any
	err := d.Decode(&args)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = fmt.Errorf("more than one value")
		}
	}
	if err != nil || args == nil {
		return nil, brig.InvalidField("args", "the value is not a JSON object").WithHint(`for example {"name":"World","count":3}`)
	}
	return args, nil
}

// minWork is the minimum for the work limit of a coercer. The limit grows with the
// size of the arguments.
const minWork = 10_000

// coercer converts values to the types in a schema.
type coercer struct {
	remainingWork int // work until the limit, which depends on the size of the arguments
}

// mismatch describes where and why a value does not match its schema.
type mismatch struct {
	path []string // innermost first
	text string
	hint func() string // nil: no hint
	work bool          // the check exceeded the work limit
}

// addField adds the field that contains the value to the path of w.
func (w *mismatch) addField(field string) *mismatch {
	w.path = append(w.path, "."+brig.Clip(field, 80))
	return w
}

// addIndex is like addField, for an element of a list.
func (w *mismatch) addIndex(i int) *mismatch {
	w.path = append(w.path, "["+strconv.Itoa(i)+"]")
	return w
}

func (w *mismatch) err() error {
	if w.work {
		return brig.InvalidField("json_schema", "%s", w.text).WithHint("give one that does not refer to its own parts over and over")
	}
	var field strings.Builder
	field.WriteString("args")
	for _, part := range slices.Backward(w.path) {
		field.WriteString(part)
	}
	err := brig.InvalidField(field.String(), "%s", w.text)
	if w.hint != nil {
		err = err.WithHint("%s", w.hint())
	}
	return err
}

// countWork counts a visit of a value and returns an error when the work limit is
// exceeded. Without a limit, the work could grow exponentially, because each part
// of a schema can refer to another part several times.
func (c *coercer) countWork(v any) *mismatch {
	c.remainingWork--
	switch v := v.(type) {
	case string:
		c.remainingWork -= len(v) / 8
	case json.Number:
		c.remainingWork -= len(v) / 8
	}
	if c.remainingWork < 0 {
		return &mismatch{text: "to give the arguments its types is too much work", work: true}
	}
	return nil
}

// coerceValue converts one value to the type in its schema. If the schema allows
// several types, the first one that matches applies.
func (c *coercer) coerceValue(v any, s *schema, depth int) (any, *mismatch) {
	if invalid := c.countWork(v); invalid != nil {
		return nil, invalid
	}
	if s = s.target(); s == nil || depth > maxDepth {
		return v, nil
	}
	if len(s.choices) > 0 {
		var first *mismatch
		for _, one := range s.choices {
			out, invalid := c.coerceValue(v, one, depth+1)
			if invalid == nil || invalid.work {
				return out, invalid
			}
			if first == nil {
				first = invalid
			}
		}
		return nil, first
	}
	var invalid *mismatch
	for _, one := range s.AllOf {
		if v, invalid = c.coerceValue(v, one, depth+1); invalid != nil {
			return nil, invalid
		}
	}
	for i, name := range s.kinds {
		out, ok := convert(v, name)
		if ok {
			v = out
			break
		}
		if i == len(s.kinds)-1 {
			return nil, &mismatch{text: "it is not of the type " + strings.Join(s.kinds, " or "), hint: func() string { return "see the tool's schema" }}
		}
	}
	if len(s.allowed) > 0 {
		formatted := fmt.Sprint(v)
		if invalid := c.countWork(formatted); invalid != nil {
			return nil, invalid
		}
		if !s.allowed[formatted] {
			return nil, &mismatch{
				text: "it is none of the values that the schema allows",
				hint: func() string { return "it allows " + brig.Clip(fmt.Sprint(s.Enum), 200) },
			}
		}
	}
	return c.coerceElements(v, s, depth)
}

// coerceElements converts the elements or fields of a value.
func (c *coercer) coerceElements(v any, s *schema, depth int) (any, *mismatch) {
	var invalid *mismatch
	switch v := v.(type) {
	case []any:
		if s.Items == nil {
			return v, nil
		}
		out := make([]any, len(v))
		for i := range v {
			if out[i], invalid = c.coerceValue(v[i], s.Items, depth+1); invalid != nil {
				return nil, invalid.addIndex(i)
			}
		}
		return out, nil
	case map[string]any:
		out := map[string]any{}
		for k := range v {
			if out[k], invalid = c.coerceValue(v[k], s.Properties[k], depth+1); invalid != nil {
				return nil, invalid.addField(k)
			}
		}
		for _, name := range s.Required {
			if _, ok := out[name]; !ok {
				return nil, (&mismatch{text: "the schema requires it"}).addField(name)
			}
		}
		return out, nil
	}
	return v, nil
}

// convert returns v as a value of a type. It returns false if v neither has the
// type nor is a string that represents a value of the type.
func convert(v any, kind string) (any, bool) {
	text, isText := v.(string)
	switch kind {
	case "string":
		return v, isText
	case "integer":
		return parseInteger(v)
	case "number":
		if isText {
			v = json.Number(strings.TrimSpace(text))
		}
		n, ok := v.(json.Number)
		if !ok || !json.Valid([]byte(n)) {
			return nil, false
		}
		_, err := n.Float64()
		return n, err == nil
	case "boolean":
		if b, ok := v.(bool); ok {
			return b, true
		}
		b, err := strconv.ParseBool(strings.ToLower(text))
		return b, isText && len(text) > 1 && err == nil
	case "null":
		return nil, v == nil || isText && (text == "null" || text == "None")
	case "array", "object":
		if isText {
			d := json.NewDecoder(strings.NewReader(text))
			d.UseNumber()
			if d.Decode(&v) != nil || d.InputOffset() != int64(len(text)) {
				return nil, false
			}
		}
		_, list := v.([]any)
		_, object := v.(map[string]any)
		return v, list && kind == "array" || object && kind == "object"
	}
	return v, true
}

// parseInteger returns v as an integer. It accepts 3, 3.0 and "3".
func parseInteger(v any) (any, bool) {
	text, isText := v.(string)
	if n, ok := v.(json.Number); ok {
		text = n.String()
	} else if !isText {
		return nil, false
	}
	text = strings.TrimSpace(text)
	whole, fraction, dotted := strings.Cut(text, ".")
	if dotted && strings.Trim(fraction, "0") != "" {
		return nil, false
	}
	digits := strings.TrimPrefix(whole, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" || !json.Valid([]byte(whole)) {
		return nil, false
	}
	return json.Number(whole), true
}

// maxError is the maximum number of characters in the result of ErrorText.
const maxError = 1000

// Truncate returns the first limit characters of a text, with a note if the text
// was truncated.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	n := utf8.RuneCountInString(text)
	if n <= limit {
		return text
	}
	pos := 0
	for range limit {
		_, size := utf8.DecodeRuneInString(text[pos:])
		pos += size
	}
	return fmt.Sprintf("%s... [NOTE: function output was truncated since it exceeded the character limit (%d > %d)]", text[:pos], n, limit)
}

// ErrorText returns the text that reports a failed call to the agent.
func ErrorText(name string, e *brig.ProgramError) string {
	text := fmt.Sprintf("Error executing function %s: %s: %s", name, e.Name, e.Message)
	if utf8.RuneCountInString(text) <= maxError {
		return text
	}
	return string([]rune(text)[:maxError])
}
