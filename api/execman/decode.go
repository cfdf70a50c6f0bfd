package execman

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// invalid is how a request is refused, in the form of the framework that the
// first manager was made with.
type invalid struct {
	Detail []complaint `json:"detail"`
}

type complaint struct {
	Type string   `json:"type"`
	Loc  []string `json:"loc"`
	Msg  string   `json:"msg"`
}

func refuse(kind, message string, at ...string) *invalid {
	return &invalid{Detail: []complaint{{Type: kind, Loc: append([]string{"body"}, at...), Msg: message}}}
}

// decode makes a program of a request. What the request has beyond what is
// known is not looked at.
func decode(body []byte) (brig.Program, *invalid) {
	var p brig.Program
	var given map[string]json.RawMessage
	if err := json.Unmarshal(body, &given); err != nil || given == nil {
		return p, refuse("json_invalid", "the body is not a JSON object")
	}
	var text string
	switch raw, ok := given["code_b64"]; {
	case !ok:
		return p, refuse("missing", "Field required", "code_b64")
	case string(raw) == "null" || json.Unmarshal(raw, &text) != nil:
		return p, refuse("string_type", "Input should be a valid string", "code_b64")
	}
	code, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return p, refuse("value_error", "Value error, Invalid base64 encoding", "code_b64")
	}
	if !utf8.Valid(code) {
		return p, refuse("value_error", "Value error, the code is not UTF-8", "code_b64")
	}
	language := wire.ExecmanPython // who names none writes Python
	if raw, ok := given["language"]; ok && (string(raw) == "null" || json.Unmarshal(raw, &language) != nil || language != wire.ExecmanPython && language != wire.ExecmanNode) {
		return p, refuse("enum", "Input should be 'python' or 'nodejs'", "language")
	}
	p.Arguments, p.Artifacts = json.RawMessage("{}"), true
	if raw, ok := given["arguments"]; ok && string(raw) != "null" {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return p, refuse("dict_type", "Input should be a valid dictionary", "arguments")
		}
		p.Arguments = raw
	}
	p.Language = brig.Python
	if language == wire.ExecmanNode {
		p.Language = brig.JavaScript
	}
	// No code is a program that has no main, and that is said of it.
	if p.Code = string(code); p.Code == "" {
		p.Code = "\n"
	}
	return p, nil
}
