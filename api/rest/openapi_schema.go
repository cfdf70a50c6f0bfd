package rest

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// base64Pattern matches base64, which contentEncoding does not enforce.
const base64Pattern = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

// collectSchemas adds the schema names of t and of the structs in it to names.
func (d describer) collectSchemas(t reflect.Type, names map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		d.collectSchemas(t.Elem(), names)
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() || names[t.Name()] {
			return
		}
		names[t.Name()] = true
		for f := range t.Fields() {
			d.collectSchemas(f.Type, names)
		}
	}
}

// constrain adds the constraints in struct tags that huma does not support: the
// constraints of a map's keys, and of the elements of a list or map. Request
// schemas also get the allowed combinations of fields.
func (d describer) constrain(requests map[string]bool) {
	for name, s := range d.registry.Map() {
		t := d.registry.TypeFromRef(schemaPrefix + name)
		if t == nil || t.Kind() != reflect.Struct {
			continue
		}
		for field, c := range httpapi.Constraints(t) {
			if p := s.Properties[field]; p != nil {
				constrain(p, c)
				p.Nullable = p.Nullable && !requests[name] && c.Required // responses omit an empty optional list
				if field == "command" && requests[name] {                // the first element of command must not be empty
					p.Extensions = object{"prefixItems": []any{object{"minLength": 1}}}
				}
				if requests[name] && p.ContentEncoding == "base64" {
					p.Pattern = base64Pattern
				}
			}
		}
		if requests[name] {
			s.Extensions = combinations[name]
		}
	}
}

func constrain(p *huma.Schema, c *httpapi.Constraint) {
	elements, _ := p.AdditionalProperties.(*huma.Schema)
	switch {
	case p.Type == huma.TypeArray:
		elements = p.Items
	case len(p.OneOf) > 0 && p.OneOf[0].Type == huma.TypeInteger: // a size
		p.OneOf[0].Minimum, p.Minimum = p.Minimum, nil
	}
	if elements == nil {
		return
	}
	elements.Minimum, elements.Maximum, p.Minimum, p.Maximum = p.Minimum, p.Maximum, nil, nil
	if c.Items != nil {
		elements.Pattern = c.Items.String()
	}
	if p.Type == huma.TypeArray {
		return
	}
	p.MinProperties, p.MaxProperties, p.MinItems, p.MaxItems = p.MinItems, p.MaxItems, nil, nil
	if c.Keys != nil {
		p.Extensions = object{"propertyNames": object{"pattern": c.Keys.String()}}
	}
}

// object is part of a JSON schema.
type object = map[string]any

// combinations maps request schemas to the allowed combinations of fields. The
// handlers and the engine check the same combinations.
var combinations = map[string]object{
	"RunRequest": {
		"oneOf": []any{
			object{"required": []string{"code", "language"}, "properties": forbidFields("command")},
			object{"required": []string{"command"}, "properties": forbidFields("code", "language", "step", "arguments", "grace_ms")},
		},
		"anyOf": notBoth("stdin", "stdin_b64"),
	},
	"ExecRequest":    {"oneOf": exactlyOne("command", "shell"), "anyOf": notBoth("stdin", "stdin_b64")},
	"ProcessRequest": {"oneOf": exactlyOne("command", "shell")},
	"CodeRequest":    {"anyOf": notBoth("context_id", "language")},
	"ProcessInput":   {"oneOf": exactlyOne("data", "data_b64")},
	"File":           {"oneOf": exactlyOne("content", "content_b64")},
	"Input":          {"anyOf": notBoth("stdin", "stdin_b64")},
	"EgressRule":     {"oneOf": exactlyOne("host", "cidr"), "dependentRequired": object{"methods": []string{"host"}, "paths": []string{"host"}}},
	"SecretRequest":  {"anyOf": notBoth("value", "value_b64")},
	"ForkRequest": {"anyOf": []any{
		object{"properties": object{"count": object{"maximum": 1}}},
		object{"properties": forbidTrue("paused", "name")},
	}},
	"TemplateBuildRequest": {"oneOf": exactlyOne("image", "template")},
	"Placement":            {"dependentRequired": object{"only": []string{"provider"}}, "if": byRegion, "then": withRegions},
	"Routing":              {"if": byRegion, "then": withRegions},
	"Spec": {
		"anyOf": []any{
			object{"required": []string{"command"}, "properties": forbidPause("shell")},
			object{"required": []string{"shell"}, "properties": forbidPause("command", "entrypoint")},
			object{"required": []string{"entrypoint"}, "properties": forbidPause("shell")},
			object{"properties": forbidFields("user", "cwd", "command_env", "timeout_ms", "command", "shell", "entrypoint")},
		},
		"oneOf": []any{object{"required": []string{"template"}, "properties": forbidFields("image")}, object{"properties": forbidFields("template")}},
	},
}

// A request that prefers regions must list at least one region.
var (
	byRegion    = object{"properties": object{"prefer": object{"const": "region"}}, "required": []string{"prefer"}}
	withRegions = object{"properties": object{"regions": object{"minItems": 1}}, "required": []string{"regions"}}
)

// exactlyOne returns schemas that together require exactly one of two fields.
func exactlyOne(a, b string) []any {
	return []any{
		object{"required": []string{a}, "properties": forbidFields(b)},
		object{"required": []string{b}, "properties": forbidFields(a)},
	}
}

// notBoth returns schemas that together allow at most one of two fields.
func notBoth(a, b string) []any {
	return []any{object{"properties": forbidFields(a)}, object{"properties": forbidFields(b)}}
}

// forbidFields returns properties that forbid the fields.
func forbidFields(fields ...string) object {
	out := object{}
	for _, f := range fields {
		out[f] = object{"not": object{}}
	}
	return out
}

// forbidTrue returns properties that forbid the value true of a flag, and
// forbid the fields.
func forbidTrue(flag string, fields ...string) object {
	out := forbidFields(fields...)
	out[flag] = object{"enum": []any{false}}
	return out
}

// forbidPause returns properties that prohibit the engine from pausing the
// sandbox, and forbid the fields.
func forbidPause(fields ...string) object {
	out := forbidTrue("pause_at_end", fields...)
	out["pause_after_ms"] = object{"maximum": 0}
	return out
}

// addLimits adds the server's limits to the schemas of request fields.
func (d describer) addLimits(b brig.LimitRange) {
	schemas := d.registry.Map()
	if limits := schemas["Limits"]; limits != nil {
		bytes := func(name string, minimum, maximum, def int64) {
			describeBounds(limits, name, brig.FormatBytes(minimum), brig.FormatBytes(maximum), brig.FormatBytes(def))
			setRange(limits.Properties[name].OneOf[0], float64(minimum), float64(maximum))
		}
		number := func(name string, minimum, maximum, def float64) {
			describeBounds(limits, name, minimum, maximum, def)
			setRange(limits.Properties[name], minimum, maximum)
		}
		bytes("memory", b.Min.Memory, b.Max.Memory, b.Default.Memory)
		bytes("disk", b.Min.Disk, b.Max.Disk, b.Default.Disk)
		bytes("output", b.Min.Output, b.Max.Output, b.Default.Output)
		number("cpus", b.Min.CPUs, b.Max.CPUs, b.Default.CPUs)
		number("processes", float64(b.Min.Processes), float64(b.Max.Processes), float64(b.Default.Processes))
		number("open_files", float64(b.Min.OpenFiles), float64(b.Max.OpenFiles), float64(b.Default.OpenFiles))
	}
	limitDuration := func(schema, field string, d time.Duration) {
		if s := schemas[schema]; s != nil && d > 0 {
			setRange(s.Properties[field], 0, float64(d.Milliseconds()))
		}
	}
	for _, schema := range []string{"Spec", "RunRequest", "ExecRequest", "CodeRequest"} {
		limitDuration(schema, "timeout_ms", b.MaxTimeout)
	}
	limitDuration("Spec", "ttl_ms", b.MaxTTL)
	limitDuration("Spec", "freeze_after_ms", b.MaxTTL)
	limitDuration("Spec", "pause_after_ms", b.MaxTTL)
	limitDuration("ExtendRequest", "ttl_ms", b.MaxTTL)
	limitDuration("ForkRequest", "ttl_ms", b.MaxTTL)
}

func setRange(s *huma.Schema, minimum, maximum float64) { s.Minimum, s.Maximum = &minimum, &maximum }

func describeBounds(s *huma.Schema, name string, minimum, maximum, def any) {
	p := s.Properties[name]
	p.Description = fmt.Sprintf("%s; from %v to %v, default %v", p.Description, minimum, maximum, def)
}

// schema returns the schema of a parameter.
func (p parameter) schema() *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString, Pattern: p.pattern, Format: p.format}
	switch {
	case p.number:
		s = &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: p.minimum(), Maximum: p.maximum()}
	case p.boolean:
		s.Type = huma.TypeBoolean
	case p.nonempty:
		one := 1
		s.MinLength = &one
	}
	if p.maxLength > 0 {
		s.MaxLength = &p.maxLength
	}
	for _, v := range p.enum {
		s.Enum = append(s.Enum, v)
	}
	if p.repeated {
		s = &huma.Schema{Type: huma.TypeArray, Items: s}
	}
	return s
}

func (p parameter) minimum() *float64 {
	v := float64(p.min)
	return &v
}

func (p parameter) maximum() *float64 {
	if p.max == 0 {
		return nil
	}
	v := float64(p.max)
	return &v
}

// pathParameters maps names to path parameters. A name has the same meaning in
// every operation.
var pathParameters = map[string]parameter{
	"name":    {doc: "The name. For a sandbox also its ID or scoped ID", nonempty: true, example: "worker-1"},
	"id":      {doc: "The ID", nonempty: true, example: "k1"},
	"pid":     {doc: "Process ID inside the sandbox", number: true, min: 1, max: 1<<31 - 1, example: 42},
	"port":    {doc: "The TCP port inside the sandbox", number: true, min: 1, max: 65535, example: 8000},
	"version": {doc: "Number of the version; 0 is the newest", number: true, max: 1<<31 - 1, example: 1},
	"tag":     {doc: "The tag", nonempty: true, example: "stable"},
	"digest":  {doc: "Digest that the client chooses, 64 hexadecimal digits: the same for the same files, and no other", nonempty: true, pattern: "^[0-9a-f]{64}$", example: strings.Repeat("0a", 32)},
	"ref":     {doc: "Name or digest of the image", nonempty: true, example: "host"},
}

// stateNames returns the states of sandboxes for an enum.
func stateNames() (out []string) {
	for _, s := range brig.States {
		out = append(out, string(s))
	}
	return slices.Clip(out)
}

// outcomeStatuses returns the statuses of runs.
func outcomeStatuses() (out []string) {
	for _, s := range brig.OutcomeStatuses {
		out = append(out, string(s))
	}
	return slices.Clip(out)
}

// streamPrefix is the id prefix of the streaming variant of an operation. The
// variant sends events before the result of the operation without the prefix.
const streamPrefix = "stream-"

// base returns the id of the operation without the stream prefix.
func (rt route) base() string { return strings.TrimPrefix(rt.id, streamPrefix) }

// withStreams adds the streaming variants to routes.
func withStreams(routes []route) []route {
	out := slices.Clone(routes)
	for _, rt := range routes {
		if rt.events == nil || rt.longLived {
			continue
		}
		handle := rt.handle
		rt.id, rt.pattern, rt.streamed = streamPrefix+rt.id, rt.pattern+"/stream", true
		rt.summary += ", with events"
		rt.notes = "Streams events, as JSON lines or, if the Accept header has text/event-stream, as server-sent events. An error before the first event has its own HTTP status. " + rt.notes
		if slices.Contains(rt.events, v1.EventStarted) {
			rt.notes += " A body of application/x-ndjson can continue with standard input: its first line is the request, and each further line is an object with stdin (text), stdin_b64 (bytes) or close_stdin."
		}
		rt.handle = asStream(handle)
		out = append(out, rt)
	}
	return out
}

// asStream returns handle with streaming of events, regardless of the Accept
// header.
func asStream(handle handler) handler {
	return func(w http.ResponseWriter, r *http.Request, q url.Values) error {
		if ndjson, sse := acceptedFormat(r); !ndjson && !sse {
			r.Header.Set("Accept", v1.NDJSON)
		}
		return handle(w, r, q)
	}
}
