package kernels

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/exactjson"
)

// Limits of a client's messages. The engine has its own, lower limits for code.
const (
	maxMessage = 16 << 20
	maxHeader  = 8 << 10
	maxName    = 256

	maxExpressions = 1000
)

// request is the part of a client's message that is kept.
type request struct {
	header  json.RawMessage // unchanged, because it is the parent_header of all responses
	id      string
	kind    string
	channel string
	restart bool            // whether a shutdown_request requests a restart
	run     *executeRequest // content of an execute_request
	forms   bool            // whether the client requests Brig's additional representations
}

// size returns the number of bytes that r uses, which is at most the size of
// the message.
func (r *request) size() int {
	n := len(r.header)
	if r.run != nil {
		n += len(*r.run.Code) + r.run.Expressions.size()
	}
	return n
}

// parse parses a message. It ignores unknown fields.
func parse(data []byte) (*request, error) {
	var m struct {
		Header  json.RawMessage `json:"header"`
		Channel *string         `json:"channel"`
		Content json.RawMessage `json:"content"`
		Meta    json.RawMessage `json:"metadata"`
	}
	if !utf8.Valid(data) || exactjson.Unmarshal(data, &m) != nil {
		return nil, brig.Errorf(brig.InvalidArgument, "the message is not a JSON object of header, channel and content")
	}
	var h struct {
		ID   *string `json:"msg_id"`
		Kind *string `json:"msg_type"`
	}
	switch {
	case len(m.Header) == 0 || m.Header[0] != '{' || exactjson.Unmarshal(m.Header, &h) != nil:
		return nil, brig.InvalidField("header", "it is not an object of msg_id and msg_type")
	case len(m.Header) > maxHeader:
		return nil, brig.InvalidField("header", "it has more than %d bytes", maxHeader)
	case h.ID == nil || *h.ID == "" || len(*h.ID) > maxName:
		return nil, brig.InvalidField("header.msg_id", "it is missing or longer than %d bytes", maxName)
	case h.Kind == nil || *h.Kind == "" || len(*h.Kind) > maxName:
		return nil, brig.InvalidField("header.msg_type", "it is missing or longer than %d bytes", maxName)
	}
	r := &request{header: m.Header, id: *h.ID, kind: *h.Kind, channel: "shell"}
	r.forms = isFormsRequested(m.Meta)
	if m.Channel != nil && *m.Channel != "" {
		r.channel = *m.Channel
	}
	switch r.channel {
	case "shell", "control", "stdin":
	default:
		return nil, brig.InvalidField("channel", "it is not shell, control or stdin")
	}
	if len(m.Content) == 0 || string(m.Content) == "null" {
		m.Content = json.RawMessage("{}")
	}
	if m.Content[0] != '{' {
		return nil, brig.InvalidField("content", "it is not an object")
	}
	var err error
	switch r.kind {
	case "execute_request":
		r.run, err = parseExecution(m.Content)
	case "shutdown_request":
		r.restart = isRestart(m.Content)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// isFormsRequested reports whether a message's metadata requests the
// representations of values that ipykernel does not send: {"brig": {"forms":
// true}}.
func isFormsRequested(metadata []byte) bool {
	var m struct {
		Brig struct {
			Forms bool `json:"forms"`
		} `json:"brig"`
	}
	return len(metadata) > 0 && exactjson.Unmarshal(metadata, &m) == nil && m.Brig.Forms
}

// executeRequest is the content of an execute_request.
type executeRequest struct {
	Code        *string `json:"code"`
	Silent      bool    `json:"silent"`
	History     *bool   `json:"store_history"` // nil means true
	Expressions names   `json:"user_expressions"`
}

// names decodes an object, and keeps only the names of its fields.
type names []string

func (n names) size() (sum int) {
	for _, name := range n {
		sum += len(name)
	}
	return sum
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *names) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("it is not an object")
	}
	*n = nil
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		if len(*n) == maxExpressions {
			return fmt.Errorf("there are more than %d", maxExpressions)
		}
		*n = append(*n, name.(string)) //nolint:forcetypeassert // a field's name is a string
	}
	return nil
}

// parseExecution parses the content of an execute_request.
func parseExecution(content []byte) (*executeRequest, error) {
	var x executeRequest
	if err := json.Unmarshal(content, &x); err != nil {
		return nil, brig.InvalidField("content", "it is not a valid execute_request")
	}
	if x.Code == nil {
		return nil, brig.InvalidField("content.code", "it is missing")
	}
	return &x, nil
}

// header identifies a message to the client, and its session.
type header struct {
	ID       string `json:"msg_id"`
	Kind     string `json:"msg_type"`
	Username string `json:"username"`
	Session  string `json:"session"`
	Date     string `json:"date"`
	Version  string `json:"version"`
}

// reply is a message to the client.
type reply struct {
	Header   header          `json:"header"`
	ID       string          `json:"msg_id"`
	Kind     string          `json:"msg_type"`
	Parent   json.RawMessage `json:"parent_header"`
	Metadata struct{}        `json:"metadata"`
	Content  any             `json:"content"`
	Buffers  []string        `json:"buffers"`
	Channel  string          `json:"channel"`
}

// protocolVersion is the version of Jupyter's messaging protocol.
const protocolVersion = "5.3"

// isUrgent reports whether a request is handled immediately instead of queued.
// Clients send these requests on the control channel. Older clients use the
// shell channel, where the requests would wait for the code that they are meant
// to end. Other requests on the control channel are queued, because running
// code would otherwise block the reading of later messages.
func (r *request) isUrgent() bool {
	return r.channel != "stdin" && (r.kind == "interrupt_request" || r.kind == "shutdown_request")
}

// isRestart reports whether a shutdown_request requests a restart.
func isRestart(content []byte) bool {
	var in struct {
		Restart bool `json:"restart"`
	}
	return json.Unmarshal(content, &in) == nil && in.Restart
}

// encodeReply returns an encoded message that answers the request r.
func (c *channel) encodeReply(r *request, on, kind string, content any) ([]byte, error) {
	h := header{ID: c.d.NewID(), Kind: kind, Username: "brig", Session: c.session, Date: formatTime(c.d.Now()), Version: protocolVersion}
	b, err := json.Marshal(reply{Header: h, ID: h.ID, Kind: kind, Parent: r.header, Content: content, Buffers: []string{}, Channel: on})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	return b, nil
}
