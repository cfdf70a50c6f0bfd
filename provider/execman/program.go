package execman

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// source is a program as the service runs it: what it calls is main, always.
type source struct {
	request wire.ExecmanRequest
	// values says that what comes back is the program's own, and listed that it
	// is in a list, which is empty for JavaScript's undefined.
	values, listed bool
}

// Programs that are not there to have their main called get one, so that they
// run as they do everywhere else.
const (
	pythonRest = "\n\n\ndef main():\n    return None\n"
	// What the service puts behind a program is behind a return then.
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

// prepare makes of a program one that the service runs as it is meant.
func prepare(p brig.Program) source {
	code, given := p.Code, len(p.Arguments) > 0
	s := source{values: true}
	s.request.Arguments = json.RawMessage("{}")
	if given {
		s.request.Arguments = p.Arguments
	}
	if p.Language == brig.Python {
		s.request.Language = wire.ExecmanPython
		if !given && (!pythonMain.MatchString(code) || callsMain(code, pythonDef)) {
			s.values = false
			// It is imported there, and asks whether it is the program.
			if strings.Contains(code, "__name__") && !strings.Contains(code, "from __future__") {
				code = "__name__ = \"__main__\"\n" + code
			}
			code += pythonRest
		}
	} else {
		s.request.Language = wire.ExecmanNode
		if !given && (!nodeMain.MatchString(code) || callsMain(code, nodeDef)) {
			s.values = false
			code += nodeRest
		} else {
			s.listed = true
			code += nodeValue
		}
	}
	s.request.CodeB64 = base64.StdEncoding.EncodeToString([]byte(code))
	return s
}

// callsMain reports whether a program calls its main by itself.
func callsMain(code string, definition *regexp.Regexp) bool {
	return len(mainCall.FindAllString(code, -1)) > len(definition.FindAllString(code, -1))
}

// value is what main returned, as the program meant it.
func (s source) value(v wire.ExecmanValue) json.RawMessage {
	if !s.values || !v.Present {
		return nil
	}
	if !s.listed {
		return v.Value
	}
	var list []json.RawMessage
	if json.Unmarshal(v.Value, &list) != nil || len(list) != 1 {
		return nil
	}
	return list[0]
}
