package execman

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// validationError is the body of the response to an invalid request, in the
// format of the original manager's framework.
type validationError struct {
	Detail []fieldError `json:"detail"`
}

type fieldError struct {
	Type string   `json:"type"`
	Loc  []string `json:"loc"`
	Msg  string   `json:"msg"`
}

func reject(kind, message string, loc ...string) *validationError {
	return &validationError{Detail: []fieldError{{Type: kind, Loc: append([]string{"body"}, loc...), Msg: message}}}
}

// decode converts a request to a program. It ignores unknown fields.
func decode(body []byte) (brig.Program, *validationError) {
	var p brig.Program
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return p, reject("json_invalid", "the body is not a JSON object")
	}
	var text string
	switch raw, ok := fields["code_b64"]; {
	case !ok:
		return p, reject("missing", "Field required", "code_b64")
	case string(raw) == "null" || json.Unmarshal(raw, &text) != nil:
		return p, reject("string_type", "Input should be a valid string", "code_b64")
	}
	code, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return p, reject("value_error", "Value error, Invalid base64 encoding", "code_b64")
	}
	if !utf8.Valid(code) {
		return p, reject("value_error", "Value error, the code is not UTF-8", "code_b64")
	}
	language := v1.ExecmanPython // the default language is Python
	if raw, ok := fields["language"]; ok && (string(raw) == "null" || json.Unmarshal(raw, &language) != nil || language != v1.ExecmanPython && language != v1.ExecmanNode) {
		return p, reject("enum", "Input should be 'python' or 'nodejs'", "language")
	}
	p.Arguments, p.Artifacts = json.RawMessage("{}"), true
	if raw, ok := fields["arguments"]; ok && string(raw) != "null" {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return p, reject("dict_type", "Input should be a valid dictionary", "arguments")
		}
		p.Arguments = raw
	}
	p.Language = brig.Python
	if language == v1.ExecmanNode {
		p.Language = brig.JavaScript
	}
	// Empty code is a program without main. The program itself reports that
	// error.
	if p.Code = string(code); p.Code == "" {
		p.Code = "\n"
	}
	return p, nil
}
