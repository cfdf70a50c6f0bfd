package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// methods are the methods of requests that the library handles. The value
// reports whether a request needs params.
var methods = map[string]bool{
	"completion/complete": true, "initialize": true, "logging/setLevel": true, "ping": false,
	"prompts/get": true, "prompts/list": false, "resources/list": false, "resources/read": true,
	"resources/subscribe": true, "resources/templates/list": false, "resources/unsubscribe": true,
	"server/discover": false, "subscriptions/listen": true, "tools/call": true, "tools/list": false,
}

// notifications are the notifications that the library handles.
var notifications = map[string]bool{
	"notifications/cancelled": true, "notifications/initialized": true,
	"notifications/progress": true, "notifications/roots/list_changed": true,
}

// protocolError is a JSON-RPC error for messages that are not passed to the
// library. The library would answer them with plain text over HTTP and would
// not answer them on streams.
type protocolError struct {
	id      json.RawMessage // of the request, or null
	code    int64
	message string
}

// response returns the error as a message.
func (e *protocolError) response() []byte {
	if e.id == nil {
		e.id = json.RawMessage("null")
	}
	text, err := json.Marshal(e.message)
	if err != nil {
		text = []byte(`""`) // text can always be encoded
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, e.id, e.code, text)
}

// batchless is the first version without batches. withBatches lists the earlier
// versions.
const batchless = "2025-06-18"

var withBatches = map[string]bool{"2024-11-05": true, "2025-03-26": true}

func errBatch() *protocolError {
	return &protocolError{code: jsonrpc.CodeInvalidRequest, message: "there are no batches since version " + batchless}
}

// messages holds the messages in the body of an HTTP request or in one line of
// a stream.
type messages struct {
	batch bool
	raw   []json.RawMessage
	all   []jsonrpc.Message // the decoded messages
}

// decodeMessages decodes messages, and rejects those that the protocol does not allow
// in any state of a session. One such message causes the rejection of its whole
// batch.
func decodeMessages(data []byte) (m messages, invalid *protocolError) {
	if !json.Valid(data) { // json.Valid also rejects text after a message, which the library would ignore
		return m, &protocolError{code: jsonrpc.CodeParseError, message: "the message is not JSON"}
	}
	if m.batch = strings.HasPrefix(strings.TrimSpace(string(data[:min(len(data), 64)])), "["); !m.batch {
		m.raw = []json.RawMessage{data}
	} else if err := json.Unmarshal(data, &m.raw); err != nil || len(m.raw) == 0 {
		return m, &protocolError{code: jsonrpc.CodeInvalidRequest, message: "there is nothing in the batch"}
	}
	for _, raw := range m.raw {
		message, err := jsonrpc.DecodeMessage(raw)
		if err != nil {
			return m, &protocolError{code: jsonrpc.CodeInvalidRequest, message: "the message is not one of JSON-RPC 2.0"}
		}
		if r, ok := message.(*jsonrpc.Request); ok {
			if invalid := checkRequest(r); invalid != nil {
				if !m.batch && r.ID.IsValid() {
					invalid.id = encodeID(r.ID)
				}
				return m, invalid
			}
		}
		m.all = append(m.all, message)
	}
	return m, nil
}

func checkRequest(r *jsonrpc.Request) *protocolError {
	var reason string
	switch notification := strings.HasPrefix(r.Method, "notifications/"); {
	case notification && r.ID.IsValid():
		reason = fmt.Sprintf("unexpected id for %q", r.Method)
	case !notification && !r.ID.IsValid():
		reason = fmt.Sprintf("missing id for %q", r.Method)
	case methods[r.Method] && len(r.Params) == 0:
		reason = "missing required \"params\""
	default:
		return nil
	}
	return &protocolError{code: jsonrpc.CodeInvalidRequest, message: reason}
}

// encodeID returns an id as JSON.
func encodeID(id jsonrpc.ID) json.RawMessage {
	b, err := json.Marshal(id.Raw())
	if err != nil {
		return json.RawMessage("null") // ids are numbers and strings
	}
	return b
}

// unknownMethod is the method to which replaceUnknown changes requests.
const unknownMethod = "brig/unknown"

// unknownParams are the params of unknownMethod.
type unknownParams struct {
	mcp.ParamsBase
	Method string `json:"method"`
}

// replaceUnknown returns the body of an HTTP request without unknown methods,
// for which the library would reject the whole body with plain text. A request
// with an unknown method calls unknownMethod, so that it is answered as on a
// stream, together with the other messages of its batch. Unknown notifications
// are removed, so the body may be empty.
func (m *messages) replaceUnknown(body []byte) []byte {
	var kept []json.RawMessage
	changed := false
	for i, message := range m.all {
		raw := m.raw[i]
		if r, ok := message.(*jsonrpc.Request); ok {
			_, supported := methods[r.Method]
			switch supported = supported || notifications[r.Method]; {
			case !supported && !r.ID.IsValid():
				changed = true
				continue
			case !supported:
				changed = true
				raw = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, encodeID(r.ID), unknownMethod, methodParams(r.Method))
			}
		}
		kept = append(kept, raw)
	}
	switch {
	case !changed:
		return body
	case len(kept) == 0:
		return nil
	case !m.batch:
		return kept[0]
	}
	out, err := json.Marshal(kept)
	if err != nil {
		return body // messages that were decoded can always be encoded
	}
	return out
}

func methodParams(method string) []byte {
	b, err := json.Marshal(map[string]string{"method": method})
	if err != nil {
		return []byte("{}") // text can always be encoded
	}
	return b
}

// answerUnknown answers unknownMethod with the library's error for the method in
// its params.
func answerUnknown(_ context.Context, _ *mcp.ServerSession, p *unknownParams) (*mcp.ResultBase, error) {
	method := unknownMethod
	if p != nil && p.Method != "" {
		method = p.Method
	}
	return nil, unknownError(method)
}

// unknownError is the library's error for an unknown method. Its value is the
// name of the method. The library would replace a *jsonrpc.Error with the same
// code by an error that names unknownMethod, so this type is only convertible
// to a *jsonrpc.Error.
type unknownError string

// Error implements error.
func (e unknownError) Error() string { return fmt.Sprintf("method not found: %q", string(e)) }

// As lets the library find the code.
func (e unknownError) As(target any) bool {
	to, ok := target.(**jsonrpc.Error)
	if ok {
		*to = &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: e.Error()}
	}
	return ok
}

// writeProtocolError answers an HTTP request with a JSON-RPC error.
func writeProtocolError(w http.ResponseWriter, e *protocolError) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, err := w.Write(e.response())
	return err
}
