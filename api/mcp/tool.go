package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// effect classifies the changes that a tool may make. Clients receive this
// information before a call.
type effect int

const (
	readOnly    effect = iota // changes no state
	additive                  // changes state but destroys no data
	destructive               // may destroy data
)

// tool is the description of a tool.
type tool struct {
	name, title, doc string
	effect           effect
	openWorld        bool // may connect to hosts outside of sandboxes
	large            bool // the response may need much memory and does not wait for a sandbox
	// choices maps arguments to their allowed values.
	choices map[string][]any
}

// presenter is implemented by responses that contain more than their JSON for
// people and models.
type presenter interface{ show() []mcp.Content }

// errorKey is the field of a result that contains the error, in the format of
// the REST API, but with the name of the tool's argument as the field.
const errorKey = "brig.run/error"

// add registers a function as a tool. The schemas are derived from the types of
// the arguments and the response.
func add[In, Out any](s *toolbox, t tool, call func(ctx context.Context, req *mcp.CallToolRequest, in *In) (*Out, error)) {
	in, err := schemaOf[In]()
	out, oerr := schemaOf[Out]()
	if err := errors.Join(err, oerr); err != nil {
		s.errs = errors.Join(s.errs, fmt.Errorf("tool %s: %w", t.name, err))
		return
	}
	for name, values := range t.choices {
		in.Properties[name].Enum = values
	}
	destroys := t.effect == destructive
	s.AddTool(&mcp.Tool{
		Name: t.name, Title: t.title, Description: t.doc, InputSchema: in, OutputSchema: out,
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.effect == readOnly, DestructiveHint: &destroys, OpenWorldHint: &t.openWorld},
	}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		args, raw := new(In), req.Params.Arguments
		if len(raw) == 0 || string(raw) == "null" {
			raw = json.RawMessage("{}")
		}
		if err := httpapi.Decode(raw, args); err != nil {
			return errorResult(err), nil
		}
		if t.large {
			if err := takeTurn(ctx); err != nil {
				return errorResult(err), nil
			}
		}
		out, err := call(ctx, req, args)
		if err == nil {
			var result *mcp.CallToolResult
			if result, err = newResult(out); err == nil {
				return result, nil
			}
		}
		if brig.KindOf(err) == brig.Internal {
			s.log.ErrorContext(ctx, "tool failed", "tool", t.name, "error", err)
		}
		return errorResult(err), nil
	})
}

// toolbox is a server to which tools are added. errs collects the errors.
type toolbox struct {
	*mcp.Server
	log  *slog.Logger
	errs error
}

// schemaOf returns the schema of a type.
func schemaOf[T any]() (*jsonschema.Schema, error) {
	return jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[[]byte]():          {Type: "string", ContentEncoding: "base64"},
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[object]():          {Type: "object"},
	}})
}

// object is a JSON object whose fields are not decoded.
type object = map[string]json.RawMessage

// newResult returns the result of a successful tool.
func newResult(out any) (*mcp.CallToolResult, error) {
	text, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	r := &mcp.CallToolResult{StructuredContent: json.RawMessage(text)}
	if s, ok := out.(presenter); ok {
		r.Content = s.show()
	}
	if len(r.Content) == 0 {
		r.Content = []mcp.Content{&mcp.TextContent{Text: string(text)}}
	}
	return r, nil
}

// errorResult returns the result of a failed tool.
func errorResult(err error) *mcp.CallToolResult {
	e := nameArguments(brig.AsError(err))
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: describe(e)}},
		Meta: mcp.Meta{errorKey: toAPIError(e)},
	}
}

func toAPIError(e *brig.Error) v1.Error { return httpapi.Body(e).Error }
