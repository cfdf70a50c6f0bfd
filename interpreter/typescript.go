package interpreter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/evanw/esbuild/pkg/api"
)

// maxTypeScript is the maximum length of TypeScript code, in bytes.
const maxTypeScript = 16 << 20

// typesErased is appended to the JavaScript of a TypeScript cell. Its imports may refer only to
// types, so a name that is missing from a module is not immediately an error.
const typesErased = "// types erased"

// SyntaxError is an error in TypeScript code.
type SyntaxError struct {
	Line    int    `json:"line,omitempty"`   // 1-based; 0 if the position is unknown
	Column  int    `json:"column,omitempty"` // 1-based, in characters
	Message string `json:"message"`
	Text    string `json:"text,omitempty"` // source text of the line
}

// Error implements error.
func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// Traceback formats the error as Node.js formats a syntax error in a JavaScript file.
func (e *SyntaxError) Traceback(file string) string {
	if e.Line == 0 {
		return "SyntaxError: " + e.Message
	}
	before := []rune(e.Text)
	before = before[:min(max(e.Column-1, 0), len(before))]
	for i, r := range before {
		if r != '\t' {
			before[i] = ' '
		}
	}
	return fmt.Sprintf("%s:%d\n%s\n%s^\n\nSyntaxError: %s\n    at %s:%d:%d",
		file, e.Line, e.Text, string(before), e.Message, file, e.Line, e.Column)
}

// TypeScript compiles a TypeScript program to JavaScript. It removes types
// without checking them, and removes imports that are used as types only.
// Statements stay on their lines, so that tracebacks are correct without a
// source map. A failure is a [SyntaxError].
//
// It has no time limit, and some programs of a hundred bytes make it run forever. Use a
// [Transpiler] for untrusted code.
func TypeScript(code string) (js string, err error) {
	return typeScript(code, `{}`)
}

// TypeScriptCell is like [TypeScript], but compiles a cell: it keeps unused imports for later
// cells.
func TypeScriptCell(code string) (js string, err error) {
	const config = `{"compilerOptions":{"verbatimModuleSyntax":true}}`
	err = errors.ErrUnsupported
	// {a: 1} is an object unless it is valid only as a block.
	if trimmed := strings.TrimSpace(code); strings.HasPrefix(trimmed, "{") && strings.HasSuffix(trimmed, "}") {
		js, err = typeScript("("+code+"\n)", config)
	}
	if err != nil {
		if js, err = typeScript(code, config); err != nil {
			return "", err
		}
	}
	return js + "\n" + typesErased, nil
}

func typeScript(code, config string) (js string, err error) {
	if len(code) > maxTypeScript {
		return "", &SyntaxError{Message: fmt.Sprintf("%d bytes of TypeScript are too many, the most is %d", len(code), maxTypeScript)}
	}
	defer func() {
		// The compiler is third-party code, and its input is untrusted.
		if r := recover(); r != nil {
			js, err = "", &SyntaxError{Message: fmt.Sprintf("the TypeScript compiler failed: %.200v", r)}
		}
	}()
	plain, mapped, err := compile(code, api.TransformOptions{
		Loader: api.LoaderTS, TsconfigRaw: config,
		Sourcemap: api.SourceMapExternal, SourcesContent: api.SourcesContentExclude,
	})
	if err != nil {
		return "", err
	}
	var m struct{ Mappings string }
	if err := json.Unmarshal(mapped, &m); err != nil {
		return plain, nil
	}
	aligned := alignLines(plain, m.Mappings)
	if aligned != plain && !isSameJavaScript(aligned, plain) {
		return plain, nil
	}
	return aligned, nil
}

// compile runs the compiler with o and the options that are common to all calls.
func compile(code string, o api.TransformOptions) (js string, mapped []byte, err error) {
	o.Target = api.ES2022
	o.Engines = []api.Engine{{Name: api.EngineNode, Version: "18"}}
	o.LegalComments = api.LegalCommentsNone
	o.TreeShaking = api.TreeShakingFalse
	o.LogLevel = api.LogLevelSilent
	o.LogLimit = 1
	o.Charset = api.CharsetUTF8
	r := api.Transform(code, o)
	if len(r.Errors) == 0 {
		return strings.TrimSuffix(string(r.Code), "\n"), r.Map, nil
	}
	e := &SyntaxError{Message: r.Errors[0].Text}
	if location := r.Errors[0].Location; location != nil {
		column := min(max(location.Column, 0), len(location.LineText))
		e.Line, e.Column, e.Text = location.Line, utf8.RuneCountInString(location.LineText[:column])+1, location.LineText
	}
	return "", nil, e
}

// isSameJavaScript reports whether two texts are the same JavaScript except for
// line breaks.
func isSameJavaScript(a, b string) bool {
	var out [2]string
	for i, code := range []string{a, b} {
		js, _, err := compile(code, api.TransformOptions{Loader: api.LoaderJS, MinifyWhitespace: true})
		if err != nil {
			return false
		}
		out[i] = js
	}
	return out[0] == out[1]
}
