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
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

// what is what a tool may do, as clients are told that ask before they call.
type what int

const (
	looks   what = iota // changes nothing
	makes               // changes something, and destroys nothing
	removes             // may destroy something
)

// tool is how a tool is known.
type tool struct {
	name, title, doc string
	what             what
	world            bool // may reach what is outside of sandboxes
	// choices are the values that an argument may have.
	choices map[string][]any
}

// shower is a tool's answer that is more than its JSON to people and models.
type shower interface{ show() []mcp.Content }

// errorKey is where a result has what went wrong, in the form of the REST API.
const errorKey = "brig.run/error"

// add makes a function a tool: the types of its arguments and its answer are
// its schemas.
func add[In, Out any](s *toolbox, t tool, call func(ctx context.Context, req *mcp.CallToolRequest, in *In) (*Out, error)) {
	in, err := schemaOf[In]()
	out, oerr := schemaOf[Out]()
	if err := errors.Join(err, oerr); err != nil {
		s.faults = errors.Join(s.faults, fmt.Errorf("tool %s: %w", t.name, err))
		return
	}
	for name, values := range t.choices {
		in.Properties[name].Enum = values
	}
	destroys := t.what == removes
	s.AddTool(&mcp.Tool{
		Name: t.name, Title: t.title, Description: t.doc, InputSchema: in, OutputSchema: out,
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.what == looks, DestructiveHint: &destroys, OpenWorldHint: &t.world},
	}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		args, given := new(In), req.Params.Arguments
		if len(given) == 0 || string(given) == "null" {
			given = json.RawMessage("{}")
		}
		if err := door.Decode(given, args); err != nil {
			return refuse(err), nil
		}
		out, err := call(ctx, req, args)
		if err == nil {
			var result *mcp.CallToolResult
			if result, err = answer(out); err == nil {
				return result, nil
			}
		}
		if brig.KindOf(err) == brig.Internal {
			s.log.ErrorContext(ctx, "tool failed", "tool", t.name, "error", err)
		}
		return refuse(err), nil
	})
}

// toolbox is a server that is given its tools, and what is wrong with them.
type toolbox struct {
	*mcp.Server
	log    *slog.Logger
	faults error
}

// schemaOf is the schema of a type.
func schemaOf[T any]() (*jsonschema.Schema, error) {
	return jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[[]byte]():          {Type: "string", ContentEncoding: "base64"},
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[object]():          {Type: "object"},
	}})
}

// object is any JSON object, as it came.
type object = map[string]json.RawMessage

// answer is the result of a tool that did what it was asked for.
func answer(out any) (*mcp.CallToolResult, error) {
	text, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	r := &mcp.CallToolResult{StructuredContent: json.RawMessage(text)}
	if s, ok := out.(shower); ok {
		r.Content = s.show()
	}
	if len(r.Content) == 0 {
		r.Content = []mcp.Content{&mcp.TextContent{Text: string(text)}}
	}
	return r, nil
}

// refuse is the result of a tool that did not.
func refuse(err error) *mcp.CallToolResult {
	e := brig.AsError(err)
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: tell(e)}},
		Meta: mcp.Meta{errorKey: failed(e)},
	}
}

func failed(e *brig.Error) wire.Error { return door.Body(e).Error }
