package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
)

// Arguments gives arguments, a JSON object, the types that the schema says,
// where they come as text that means them. Those that it does not know are left
// out: agents have further ones of their own.
func (s *Schema) Arguments(raw json.RawMessage) (json.RawMessage, error) {
	args, err := object(raw)
	if err != nil || s == nil {
		return raw, err
	}
	c := coercer{left: leastWork + 2*len(raw)}
	out := map[string]any{}
	for _, name := range s.Parameters {
		v, ok := args[name]
		if !ok {
			continue
		}
		var wrong *misfit
		if out[name], wrong = c.value(v, s.root.Properties[name], 0); wrong != nil {
			return nil, wrong.in(name).err()
		}
	}
	for _, name := range s.root.Required {
		_, ok := out[name]
		if _, known := s.root.Properties[name]; known && !ok && !given(name) {
			return nil, brig.InvalidField("args."+name, "the function needs it").WithHint("give every argument that the schema requires")
		}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode arguments: %w", err)
	}
	return b, nil
}

// given reports whether an argument is given by who runs the tool.
func given(name string) bool { return name == "agent_state" || name == "request_heartbeat" }

// object reads a JSON object. Numbers stay as they are written.
func object(raw json.RawMessage) (map[string]any, error) {
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
		return nil, brig.InvalidField("args", "they are not a JSON object").WithHint(`for example {"name":"World","count":3}`)
	}
	return args, nil
}

// leastWork is how many values may be looked at, whatever the arguments are.
// Longer ones have more values, and more looks at them.
const leastWork = 10_000

// coercer gives values their types.
type coercer struct {
	left int // of the work that the arguments are worth
}

// misfit says where a value is not what its schema says, and why.
type misfit struct {
	path []string // the innermost first
	text string
	hint func() string // nil for none
	work bool          // it was too much work to find out
}

// in returns w as one of a field of a value.
func (w *misfit) in(field string) *misfit {
	w.path = append(w.path, "."+brig.Clip(field, 80))
	return w
}

// at is in for an element of a list.
func (w *misfit) at(i int) *misfit {
	w.path = append(w.path, "["+strconv.Itoa(i)+"]")
	return w
}

func (w *misfit) err() error {
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

// work notes that a value is looked at, and reports whether that is not too
// much. A schema can say of one value that it is twice another, and so on.
func (c *coercer) work(v any) *misfit {
	c.left--
	switch v := v.(type) {
	case string:
		c.left -= len(v) / 8
	case json.Number:
		c.left -= len(v) / 8
	}
	if c.left < 0 {
		return &misfit{text: "to give the arguments its types is too much work", work: true}
	}
	return nil
}

// value gives one value the type that its schema says. Of several that it
// could have, the first that fits counts.
func (c *coercer) value(v any, s *schema, depth int) (any, *misfit) {
	if wrong := c.work(v); wrong != nil {
		return nil, wrong
	}
	if s = s.target(); s == nil || depth > maxDepth {
		return v, nil
	}
	if len(s.choices) > 0 {
		var first *misfit
		for _, one := range s.choices {
			out, wrong := c.value(v, one, depth+1)
			if wrong == nil || wrong.work {
				return out, wrong
			}
			if first == nil {
				first = wrong
			}
		}
		return nil, first
	}
	var wrong *misfit
	for _, one := range s.AllOf {
		if v, wrong = c.value(v, one, depth+1); wrong != nil {
			return nil, wrong
		}
	}
	for i, name := range s.kinds {
		out, ok := convert(v, name)
		if ok {
			v = out
			break
		}
		if i == len(s.kinds)-1 {
			return nil, &misfit{text: "it is not of the type " + strings.Join(s.kinds, " or "), hint: func() string { return "see the tool's schema" }}
		}
	}
	if len(s.allowed) > 0 {
		said := fmt.Sprint(v)
		if wrong := c.work(said); wrong != nil {
			return nil, wrong
		}
		if !s.allowed[said] {
			return nil, &misfit{
				text: "it is none of the values that the schema allows",
				hint: func() string { return "it allows " + brig.Clip(fmt.Sprint(s.Enum), 200) },
			}
		}
	}
	return c.within(v, s, depth)
}

// within gives what is in a value its types.
func (c *coercer) within(v any, s *schema, depth int) (any, *misfit) {
	var wrong *misfit
	switch v := v.(type) {
	case []any:
		if s.Items == nil {
			return v, nil
		}
		out := make([]any, len(v))
		for i := range v {
			if out[i], wrong = c.value(v[i], s.Items, depth+1); wrong != nil {
				return nil, wrong.at(i)
			}
		}
		return out, nil
	case map[string]any:
		out := map[string]any{}
		for k := range v {
			if out[k], wrong = c.value(v[k], s.Properties[k], depth+1); wrong != nil {
				return nil, wrong.in(k)
			}
		}
		for _, name := range s.Required {
			if _, ok := out[name]; !ok {
				return nil, (&misfit{text: "the schema requires it"}).in(name)
			}
		}
		return out, nil
	}
	return v, nil
}

// convert returns v as a value of a type, if it is one or is text that means
// one.
func convert(v any, kind string) (any, bool) {
	text, isText := v.(string)
	switch kind {
	case "string":
		return v, isText
	case "integer":
		return integer(v)
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

// integer returns v as a whole number: 3, 3.0 and "3" are.
func integer(v any) (any, bool) {
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
