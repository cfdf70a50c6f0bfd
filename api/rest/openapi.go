package rest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

const schemaPrefix = "#/components/schemas/"

// document describes the routes as OpenAPI 3.1. The schemas come from the
// structs that the handlers read and write. Of huma only this is used: its
// decoding repeats a caller's values in errors, and its error model is a
// global variable.
func document(routes []route, o Options) ([]byte, error) {
	d := describer{registry: huma.NewMapRegistry(schemaPrefix, huma.DefaultSchemaNamer)}
	for t, doc := range map[reflect.Type]any{
		reflect.TypeFor[wire.Size]():   sizeDoc{},
		reflect.TypeFor[wire.Mode]():   modeDoc{},
		reflect.TypeFor[wire.Object](): objectDoc{},
		reflect.TypeFor[wire.Files]():  filesDoc{},
	} {
		d.registry.RegisterTypeAlias(t, reflect.TypeOf(doc))
	}
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Brig", Version: o.Version,
			Description: "Runs untrusted code in sandboxes. Names are snake_case, durations whole milliseconds, times RFC 3339.",
		},
		Components: &huma.Components{
			Schemas: d.registry,
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"key":     {Type: "http", Scheme: "bearer", Description: "An API key (brig_…), a grant, or a token of the identity provider's"},
				"session": {Type: "apiKey", In: "cookie", Name: "brig_session", Description: "A browser's session, __Host-brig_session over https; all but GET needs the header X-Brig-CSRF, too"},
			},
		},
		Security: []map[string][]string{{"key": {}}, {"session": {}}},
	}
	strict := []string{"Limits", "File", "Input", "Terminal", "Quota", "Ceilings", "Screening", "ScreenRules"}
	for _, rt := range routes {
		doc.AddOperation(d.operation(rt))
		if rt.in != nil {
			strict = append(strict, reflect.TypeOf(rt.in).Name())
		}
	}
	for name, s := range d.registry.Map() {
		// Answers may grow fields; requests refuse those they do not know.
		if !slices.Contains(strict, name) {
			s.AdditionalProperties = nil
		}
	}
	d.finish(o.Bounds)
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode OpenAPI document: %w", err)
	}
	return b, nil
}

type describer struct{ registry huma.Registry }

func (d describer) schema(v any) *huma.Schema {
	return d.registry.Schema(reflect.TypeOf(v), true, "")
}

func (d describer) operation(rt route) *huma.Operation {
	op := &huma.Operation{
		OperationID: rt.id, Method: rt.method, Path: strings.Replace(rt.pattern, "*", "{ref}", 1),
		Summary: rt.summary, Description: rt.notes, Tags: []string{rt.tag}, Responses: map[string]*huma.Response{},
	}
	if rt.open {
		op.Security = []map[string][]string{}
	}
	for part := range strings.SplitSeq(op.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			op.Parameters = append(op.Parameters, &huma.Param{
				Name: strings.TrimSuffix(name, "}"), In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString},
			})
		}
	}
	for _, p := range rt.query {
		s := &huma.Schema{Type: huma.TypeString}
		switch {
		case p.number:
			s.Type = huma.TypeInteger
		case p.yes:
			s.Type = huma.TypeBoolean
		}
		if p.many {
			s = &huma.Schema{Type: huma.TypeArray, Items: s}
		}
		op.Parameters = append(op.Parameters, &huma.Param{Name: p.name, In: "query", Description: p.doc, Schema: s})
	}
	op.RequestBody = d.body(rt)
	op.Responses[strconv.Itoa(cmp.Or(rt.status, http.StatusOK))] = &huma.Response{Description: "Done", Content: d.answer(rt)}
	if rt.file {
		op.Responses[strconv.Itoa(http.StatusPartialContent)] = &huma.Response{Description: "Done, for a Range header", Content: d.answer(rt)}
	}
	op.Responses["default"] = &huma.Response{
		Description: "Not done", Content: map[string]*huma.MediaType{wire.JSON: {Schema: d.schema(wire.ErrorAnswer{})}},
	}
	return op
}

func (d describer) body(rt route) *huma.RequestBody {
	content := map[string]*huma.MediaType{}
	if rt.octets {
		content[wire.Octets] = octets()
	}
	switch {
	case rt.archive:
		for _, t := range archives {
			content[t] = octets()
		}
	case rt.in == nil && !rt.octets:
		return nil
	case rt.in != nil:
		content[wire.JSON] = &huma.MediaType{Schema: d.schema(rt.in)}
		if slices.Contains(rt.events, wire.EventStarted) {
			content[wire.NDJSON] = &huma.MediaType{Schema: &huma.Schema{
				Description: "The first line is the request, the others are standard input.",
				AnyOf:       []*huma.Schema{d.schema(rt.in), d.schema(wire.Input{})},
			}}
		}
	}
	return &huma.RequestBody{Content: content, Required: !rt.optional}
}

// octets describes bytes as they are.
func octets() *huma.MediaType {
	return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
}

func (d describer) answer(rt route) map[string]*huma.MediaType {
	if rt.file || rt.whole {
		return map[string]*huma.MediaType{wire.Octets: octets()}
	}
	if rt.text {
		return map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}
	}
	if rt.page {
		return map[string]*huma.MediaType{"text/html": {Schema: &huma.Schema{Type: huma.TypeString}}}
	}
	if rt.out == nil {
		return nil
	}
	content := map[string]*huma.MediaType{}
	if !rt.lasting {
		content[wire.JSON] = &huma.MediaType{Schema: d.schema(rt.out)}
	}
	if rt.events != nil {
		events := &huma.Schema{Description: "One event for each line or message; result or error is the last."}
		for _, name := range append(slices.Clone(rt.events), wire.EventResult, wire.EventError) {
			events.OneOf = append(events.OneOf, d.event(name, rt.out))
		}
		content[wire.NDJSON] = &huma.MediaType{Schema: events}
		content[wire.SSE] = &huma.MediaType{Schema: events}
	}
	return content
}

// event describes one event: its name, and beside it the fields of a document.
func (d describer) event(name string, result any) *huma.Schema {
	tag := &huma.Schema{
		Type: huma.TypeObject, Required: []string{"event"},
		Properties: map[string]*huma.Schema{"event": {Type: huma.TypeString, Enum: []any{name}}},
	}
	var doc any
	switch name {
	case wire.EventStarted:
		doc = wire.Started{}
	case wire.EventStdout, wire.EventStderr, wire.EventDescriptor3:
		doc = wire.Chunk{}
	case wire.EventCodeStarted:
		doc = wire.CodeStarted{}
	case wire.EventOutput:
		doc = wire.Rich{}
	case wire.EventException:
		doc = wire.Exception{}
	case wire.EventChange:
		doc = wire.Change{}
	case wire.EventProgress:
		doc = wire.Progress{}
	case wire.EventResult:
		doc = result
	case wire.EventError:
		doc = wire.ErrorAnswer{}
	default:
		return tag
	}
	return &huma.Schema{AllOf: []*huma.Schema{tag, d.schema(doc)}}
}

// finish says what the structs cannot.
func (d describer) finish(b brig.Bounds) {
	schemas := d.registry.Map()
	if run := schemas["RunAnswer"]; run != nil {
		run.Properties["error"] = &huma.Schema{
			Description: run.Properties["error"].Description,
			OneOf:       []*huma.Schema{d.schema(wire.ProgramError{}), {Type: "null"}},
		}
	}
	if code := schemas["CodeAnswer"]; code != nil {
		code.Properties["error"] = &huma.Schema{
			Description: code.Properties["error"].Description,
			OneOf:       []*huma.Schema{d.schema(wire.Exception{}), {Type: "null"}},
		}
	}
	if box := schemas["Sandbox"]; box != nil {
		for _, s := range brig.States {
			box.Properties["state"].Enum = append(box.Properties["state"].Enum, string(s))
		}
	}
	kinds := schemas["Error"].Properties["kind"]
	for _, k := range brig.Kinds {
		kinds.Enum = append(kinds.Enum, string(k))
	}
	if limits := schemas["Limits"]; limits != nil && b != (brig.Bounds{}) {
		bytes := func(name string, least, most, def int64) {
			describeBounds(limits, name, brig.FormatBytes(least), brig.FormatBytes(most), brig.FormatBytes(def))
		}
		bytes("memory", b.Min.Memory, b.Max.Memory, b.Default.Memory)
		bytes("disk", b.Min.Disk, b.Max.Disk, b.Default.Disk)
		bytes("output", b.Min.Output, b.Max.Output, b.Default.Output)
		describeBounds(limits, "cpus", b.Min.CPUs, b.Max.CPUs, b.Default.CPUs)
		describeBounds(limits, "processes", b.Min.Processes, b.Max.Processes, b.Default.Processes)
		describeBounds(limits, "open_files", b.Min.OpenFiles, b.Max.OpenFiles, b.Default.OpenFiles)
	}
}

func describeBounds(s *huma.Schema, name string, least, most, def any) {
	p := s.Properties[name]
	p.Description = fmt.Sprintf("%s; from %v to %v, default %v", p.Description, least, most, def)
}
