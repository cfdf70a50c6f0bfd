package execman

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/brig-run/brig"
	v1 "github.com/brig-run/brig/api/v1"
)

// source is a program converted for the service, which always calls main.
type source struct {
	request v1.ExecmanRequest
	// isValue reports whether the result is the program's own value. isListed
	// reports whether that value is wrapped in a list, which is empty for
	// JavaScript's undefined.
	isValue, isListed bool
}

// Lines that are appended to programs without a callable main function, so
// that the programs run as with other providers.
const (
	pythonRest = "\n\n\ndef main():\n    return None\n"
	// The return makes the code that the service appends unreachable.
	nodeRest  = "\nmodule.exports = { main: () => null };\nreturn;"
	nodeValue = "\nmodule.exports = { main: async (given) => { const v = await main(given);" +
		" return v === undefined ? [] : typeof v === 'function' || typeof v === 'symbol' ? v : [v]; } };\nreturn;"
)

var (
	pythonMain = regexp.MustCompile(`(?m)^(?:async[ \t]+)?def[ \t]+main[ \t]*\(|^main[ \t]*=`)
	nodeMain   = regexp.MustCompile(`\bfunction\s*\*?\s*main\b|\b(?:const|let|var)\s+main\b`)
	pythonDef  = regexp.MustCompile(`\bdef[ \t]+main[ \t]*\(`)
	nodeDef    = regexp.MustCompile(`\bfunction\s*\*?\s*main\s*\(`)
	mainCall   = regexp.MustCompile(`(?:^|[^.\w$])main\s*\(`)
)

// convertProgram converts a program to one that the service runs with the same
// result.
func convertProgram(p brig.Program) source {
	code, hasArguments := p.Code, len(p.Arguments) > 0
	s := source{isValue: true}
	s.request.Arguments = json.RawMessage("{}")
	if hasArguments {
		s.request.Arguments = p.Arguments
	}
	if p.Language == brig.Python {
		s.request.Language = v1.ExecmanPython
		if !hasArguments && (!pythonMain.MatchString(code) || callsMain(code, pythonDef)) {
			s.isValue = false
			// The service imports the program, so the program's check for the
			// main module would fail.
			if strings.Contains(code, "__name__") && !strings.Contains(code, "from __future__") {
				code = "__name__ = \"__main__\"\n" + code
			}
			code += pythonRest
		}
	} else {
		s.request.Language = v1.ExecmanNode
		if !hasArguments && (!nodeMain.MatchString(code) || callsMain(code, nodeDef)) {
			s.isValue = false
			code += nodeRest
		} else {
			s.isListed = true
			code += nodeValue
		}
	}
	s.request.CodeB64 = base64.StdEncoding.EncodeToString([]byte(code))
	return s
}

// callsMain reports whether a program calls its main function itself.
func callsMain(code string, definition *regexp.Regexp) bool {
	return len(mainCall.FindAllString(code, -1)) > len(definition.FindAllString(code, -1))
}

// value returns the return value of main.
func (s source) value(v v1.ExecmanValue) json.RawMessage {
	if !s.isValue || !v.Present {
		return nil
	}
	if !s.isListed {
		return v.Value
	}
	var list []json.RawMessage
	if json.Unmarshal(v.Value, &list) != nil || len(list) != 1 {
		return nil
	}
	return list[0]
}
