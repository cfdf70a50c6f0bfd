package kernels

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// Bounds of what a client says. Code has its own in the engine, below these.
const (
	maxMessage = 16 << 20
	maxHeader  = 8 << 10
	maxName    = 256

	maxExpressions = 1000
)

// request is what is kept of a message of a client's.
type request struct {
	header  json.RawMessage // as it came: it is the parent of all answers
	id      string
	kind    string
	channel string
	restart bool       // a shutdown_request wants the kernel back
	run     *execution // of an execute_request
}

// size is how many bytes it takes, no more than the message had.
func (r *request) size() int {
	n := len(r.header)
	if r.run != nil {
		n += len(*r.run.Code) + r.run.Expressions.size()
	}
	return n
}

// parse reads a message. What it has beyond what is known is not looked at.
func parse(data []byte) (*request, error) {
	var m struct {
		Header  json.RawMessage `json:"header"`
		Channel *string         `json:"channel"`
		Content json.RawMessage `json:"content"`
	}
	if !utf8.Valid(data) || json.Unmarshal(data, &m) != nil {
		return nil, brig.Errorf(brig.InvalidArgument, "the message is not a JSON object of header, channel and content")
	}
	var h struct {
		ID   *string `json:"msg_id"`
		Kind *string `json:"msg_type"`
	}
	switch {
	case len(m.Header) == 0 || m.Header[0] != '{' || json.Unmarshal(m.Header, &h) != nil:
		return nil, brig.InvalidField("header", "it is not an object of msg_id and msg_type")
	case len(m.Header) > maxHeader:
		return nil, brig.InvalidField("header", "it is longer than %d bytes", maxHeader)
	case h.ID == nil || *h.ID == "" || len(*h.ID) > maxName:
		return nil, brig.InvalidField("header.msg_id", "it is missing or longer than %d bytes", maxName)
	case h.Kind == nil || *h.Kind == "" || len(*h.Kind) > maxName:
		return nil, brig.InvalidField("header.msg_type", "it is missing or longer than %d bytes", maxName)
	}
	r := &request{header: m.Header, id: *h.ID, kind: *h.Kind, channel: "shell"}
	if m.Channel != nil && *m.Channel != "" {
		r.channel = *m.Channel
	}
	switch r.channel {
	case "shell", "control", "stdin":
	default:
		return nil, brig.InvalidField("channel", "it is none of shell, control and stdin")
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
		r.run, err = execute(m.Content)
	case "shutdown_request":
		r.restart = restarts(m.Content)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// execution is the content of an execute_request.
type execution struct {
	Code        *string `json:"code"`
	Silent      bool    `json:"silent"`
	Expressions names   `json:"user_expressions"`
}

// names are those of an object's fields, of which nothing else is kept.
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

// execute reads what is to be run.
func execute(content []byte) (*execution, error) {
	var x execution
	if err := json.Unmarshal(content, &x); err != nil {
		return nil, brig.InvalidField("content", "it does not fit an execute_request")
	}
	if x.Code == nil {
		return nil, brig.InvalidField("content.code", "it is missing")
	}
	return &x, nil
}

// header is that of a message of ours.
type header struct {
	ID       string `json:"msg_id"`
	Kind     string `json:"msg_type"`
	Username string `json:"username"`
	Session  string `json:"session"`
	Date     string `json:"date"`
	Version  string `json:"version"`
}

// answer is a message of ours.
type answer struct {
	Header   header          `json:"header"`
	ID       string          `json:"msg_id"`
	Kind     string          `json:"msg_type"`
	Parent   json.RawMessage `json:"parent_header"`
	Metadata struct{}        `json:"metadata"`
	Content  any             `json:"content"`
	Buffers  []string        `json:"buffers"`
	Channel  string          `json:"channel"`
}

// protocolVersion is that of Jupyter's messages.
const protocolVersion = "5.3"

// urgent reports whether a request does not wait for its turn. Whatever else is
// sent on the control channel does: code would keep all after it from being read.
func (r *request) urgent() bool {
	return r.channel == "control" && (r.kind == "interrupt_request" || r.kind == "shutdown_request")
}

// restarts reports whether a shutdown_request wants the kernel back.
func restarts(content []byte) bool {
	var in struct {
		Restart bool `json:"restart"`
	}
	return json.Unmarshal(content, &in) == nil && in.Restart
}

// answer makes a message that belongs to a request.
func (c *channel) answer(r *request, on, kind string, content any) ([]byte, error) {
	h := header{ID: c.d.NewID(), Kind: kind, Username: "brig", Session: c.session, Date: stamp(c.d.Now()), Version: protocolVersion}
	b, err := json.Marshal(answer{Header: h, ID: h.ID, Kind: kind, Parent: r.header, Content: content, Buffers: []string{}, Channel: on})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	return b, nil
}
