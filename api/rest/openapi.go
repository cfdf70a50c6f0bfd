package rest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

const schemaPrefix = "#/components/schemas/"

// document returns the OpenAPI 3.1 document of the routes. The schemas come
// from the structs that the handlers read and write, and the constraints from
// the tags that httpapi.DecodeDescribed enforces. Only huma's schema generator
// is used: its decoder repeats a caller's values in errors, and its error model
// is a global variable.
func document(routes []route, o Options) ([]byte, error) {
	d := describer{registry: huma.NewMapRegistry(schemaPrefix, huma.DefaultSchemaNamer)}
	for t, doc := range map[reflect.Type]any{
		reflect.TypeFor[v1.Size]():   sizeDoc{},
		reflect.TypeFor[v1.Mode]():   modeDoc{},
		reflect.TypeFor[v1.Object](): objectDoc{},
		reflect.TypeFor[v1.Files]():  filesDoc{},
	} {
		d.registry.RegisterTypeAlias(t, reflect.TypeOf(doc))
	}
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Brig", Version: cmp.Or(o.Version, "unknown"),
			Contact: &huma.Contact{Name: "The operator of this server"},
			Description: "Runs untrusted code in sandboxes. Names are snake_case, durations are whole milliseconds, and times are RFC 3339. A field without a value is omitted, never null. " +
				"PUT with a JSON body changes only the fields that the body names, also within objects. It replaces a list, and the config of a provider, as a whole. 0, an empty text, an empty list or false resets a field.",
		},
		Servers: []*huma.Server{
			{URL: "/", Description: "The server that serves this document"},
			{URL: "http://127.0.0.1:2744", Description: "A server on this machine, at its default address"},
		},
		Tags: tags(),
		Components: &huma.Components{
			Schemas: d.registry,
			Responses: map[string]*huma.Response{"Error": {
				Description: "The request failed. The status and error.code have the reason, and error.hint the fix.",
				Content:     map[string]*huma.MediaType{v1.JSON: {Schema: d.schema(v1.ErrorAnswer{})}},
			}},
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"key":     {Type: "http", Scheme: "bearer", Description: "An API key (brig_…), a grant, or a token of the identity provider"},
				"session": {Type: "apiKey", In: "cookie", Name: "brig_session", Description: "A browser session; the cookie is __Host-brig_session with HTTPS. All methods except GET, and upgrades of a connection, also need the header X-Brig-CSRF"},
			},
		},
		Security: []map[string][]string{{"key": {}}, {"session": {}}},
	}
	strict := map[string]bool{}
	for _, rt := range routes {
		op, err := d.operation(rt)
		if err != nil {
			return nil, err
		}
		doc.AddOperation(op)
		if rt.in != nil {
			d.collectSchemas(reflect.TypeOf(rt.in), strict)
		}
	}
	for name, s := range d.registry.Map() {
		// Later versions may add fields to responses. Requests with unknown
		// fields are rejected.
		if !strict[name] {
			s.AdditionalProperties = nil
		}
	}
	d.constrain(strict)
	d.addConstraints(o.LimitRange)
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

// path returns a route's pattern in OpenAPI syntax.
func (rt route) path() string { return strings.Replace(rt.pattern, "*", "{ref}", 1) }

func (d describer) operation(rt route) (*huma.Operation, error) {
	about, ok := operationDocs[rt.base()]
	if !ok {
		return nil, fmt.Errorf("operation %s is not described", rt.id)
	}
	op := &huma.Operation{
		OperationID: rt.id, Method: rt.method, Path: rt.path(),
		Summary: rt.summary, Description: strings.TrimSpace(about.doc + " " + rt.notes), Tags: []string{rt.tag}, Responses: map[string]*huma.Response{},
	}
	if rt.public {
		op.Security = []map[string][]string{}
	}
	for part := range strings.SplitSeq(op.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			name = strings.TrimSuffix(name, "}")
			p := pathParameters[name]
			if rt.names {
				p.pattern = namePattern
			}
			op.Parameters = append(op.Parameters, &huma.Param{
				Name: name, In: "path", Required: true, Description: p.doc, Schema: p.schema(), Example: p.example,
			})
		}
	}
	for _, p := range rt.query {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: p.name, In: "query", Description: p.doc, Required: p.required, Schema: p.schema(), Example: p.example,
		})
	}
	op.RequestBody = d.body(rt, about)
	d.responses(rt, op)
	return op, nil
}

// responses describes the responses of an operation: success, and the errors
// that a client must distinguish. Other errors have the same format.
func (d describer) responses(rt route, op *huma.Operation) {
	op.Responses[strconv.Itoa(cmp.Or(rt.status, http.StatusOK))] = &huma.Response{Description: "Done", Content: d.responseContent(rt)}
	if rt.file {
		op.Responses[strconv.Itoa(http.StatusPartialContent)] = &huma.Response{Description: "Done, for a Range header", Content: d.responseContent(rt)}
	}
	failure := func(statuses ...int) {
		for _, s := range statuses {
			op.Responses[strconv.Itoa(s)] = &huma.Response{Ref: "#/components/responses/Error"}
		}
	}
	failure(http.StatusBadRequest, http.StatusTooManyRequests)
	if !rt.public {
		failure(http.StatusUnauthorized, http.StatusForbidden)
	}
	if len(segmentsOf(rt.pattern)) > 0 {
		failure(http.StatusNotFound)
	}
	if op.RequestBody != nil {
		failure(http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if rt.method != http.MethodGet {
		failure(http.StatusConflict)
	}
	op.Responses["default"] = &huma.Response{Ref: "#/components/responses/Error"}
}

// segmentsOf returns the parameters of a pattern.
func segmentsOf(pattern string) (out []string) {
	for part := range strings.SplitSeq(pattern, "/") {
		if strings.HasPrefix(part, "{") || part == "*" {
			out = append(out, part)
		}
	}
	return out
}

func (d describer) body(rt route, about about) *huma.RequestBody {
	content := map[string]*huma.MediaType{}
	if rt.octets {
		content[v1.Octets] = octets()
	}
	switch {
	case rt.archive:
		for _, t := range archives {
			content[t] = octets()
		}
	case rt.in == nil && !rt.octets:
		return nil
	case rt.in != nil:
		content[v1.JSON] = &huma.MediaType{Schema: d.schema(rt.in)}
		if about.example != "" {
			content[v1.JSON].Example = json.RawMessage(about.example)
		}
		if rt.streamed && slices.Contains(rt.events, v1.EventStarted) {
			content[v1.NDJSON] = &huma.MediaType{Schema: d.schema(rt.in)} // schema of the body's first line
		}
	}
	return &huma.RequestBody{Content: content, Required: !rt.optional}
}

// octets describes raw bytes.
func octets() *huma.MediaType {
	return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
}

func (d describer) responseContent(rt route) map[string]*huma.MediaType {
	if rt.file || rt.isFile {
		return map[string]*huma.MediaType{v1.Octets: octets()}
	}
	if text := map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}; rt.text && !rt.streamed {
		if rt.events != nil {
			maps.Copy(text, d.events(rt))
		}
		return text
	}
	if rt.page {
		return map[string]*huma.MediaType{"text/html": {Schema: &huma.Schema{Type: huma.TypeString}}}
	}
	if rt.out == nil {
		return nil
	}
	if !rt.streamed && !rt.longLived {
		return map[string]*huma.MediaType{v1.JSON: {Schema: d.schema(rt.out)}}
	}
	return d.events(rt)
}

// events describes the events of a route.
func (d describer) events(rt route) map[string]*huma.MediaType {
	events := &huma.Schema{Description: "One event per line or message. The last one is result or error.", Discriminator: &huma.Discriminator{PropertyName: "event", Mapping: map[string]string{}}}
	for _, name := range append(slices.Clone(rt.events), v1.EventResult, v1.EventError) {
		ref := d.event(name, rt.out)
		events.OneOf = append(events.OneOf, ref)
		events.Discriminator.Mapping[name] = ref.Ref
	}
	d.registry.Map()[eventName(rt.out)] = events
	events = &huma.Schema{Ref: schemaPrefix + eventName(rt.out)}
	return map[string]*huma.MediaType{v1.NDJSON: {Schema: events}, v1.SSE: {Schema: events}}
}

// eventName returns the schema name of the events before a result.
func eventName(result any) string { return reflect.TypeOf(result).Name() + "Event" }

// event describes one event with a named schema: the event's name and the
// fields of a document.
func (d describer) event(name string, result any) *huma.Schema {
	var doc any
	schema := strings.ReplaceAll(name, "_", "") + "Event"
	switch name {
	case v1.EventStarted:
		doc = v1.Started{}
	case v1.EventStdout, v1.EventStderr, v1.EventDescriptor3, v1.EventLog:
		doc = v1.Chunk{}
	case v1.EventCodeStarted:
		doc = v1.CodeStarted{}
	case v1.EventOutput:
		doc = v1.Rich{}
	case v1.EventException:
		doc = v1.Exception{}
	case v1.EventChange:
		doc = v1.Change{}
	case v1.EventLine:
		doc = v1.TemplateBuildLine{}
	case v1.EventProgress:
		doc = v1.Progress{}
	case v1.EventResult:
		doc = result
		schema = reflect.TypeOf(result).Name() + "ResultEvent"
	case v1.EventError:
		doc = v1.ErrorAnswer{}
	}
	s := &huma.Schema{
		Type: huma.TypeObject, Required: []string{"event"},
		Properties: map[string]*huma.Schema{"event": {Type: huma.TypeString, Enum: []any{name}}},
	}
	if doc != nil {
		s = &huma.Schema{AllOf: []*huma.Schema{s, d.schema(doc)}}
	}
	schema = strings.ToUpper(schema[:1]) + schema[1:]
	d.registry.Map()[schema] = s
	return &huma.Schema{Ref: schemaPrefix + schema}
}

// addConstraints adds constraints that the structs cannot express.
func (d describer) addConstraints(b brig.LimitRange) {
	schemas := d.registry.Map()
	if run := schemas["RunAnswer"]; run != nil {
		run.Properties["error"] = &huma.Schema{
			Description: run.Properties["error"].Description,
			OneOf:       []*huma.Schema{d.schema(v1.ProgramError{}), {Type: "null"}},
		}
	}
	if code := schemas["CodeAnswer"]; code != nil {
		code.Properties["error"] = &huma.Schema{
			Description: code.Properties["error"].Description,
			OneOf:       []*huma.Schema{d.schema(v1.Exception{}), {Type: "null"}},
		}
	}
	if box := schemas["Sandbox"]; box != nil {
		box.Required = append(box.Required, "name") // the engine generates a missing one
		for _, s := range brig.States {
			box.Properties["state"].Enum = append(box.Properties["state"].Enum, string(s))
		}
	}
	kinds := schemas["Error"].Properties["kind"]
	for _, k := range brig.Kinds {
		kinds.Enum = append(kinds.Enum, string(k))
	}
	if b != (brig.LimitRange{}) {
		d.addLimits(b)
	}
}
