package wiretypes

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const madeBy = "Generated from docs/openapi.json by `make docs`. Do not edit."

// GenerateTypeScript returns a module with the types of an OpenAPI document.
func GenerateTypeScript(openapi []byte) ([]byte, error) {
	defs, err := parse(openapi)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString("// " + madeBy + "\n")
	for _, d := range defs {
		b.WriteByte('\n')
		writeComment(&b, "", d.doc)
		head, tail := "export interface "+d.name+" {\n", "}\n"
		switch {
		case d.union != nil:
			fmt.Fprintf(&b, "export type %s = %s;\n", d.name, typeScript(*d.union))
			continue
		case d.base != "":
			head, tail = "export type "+d.name+" = "+d.base+" & {\n", "};\n"
		case len(d.fields) == 0:
			value := "unknown"
			if d.closed {
				value = "never"
			}
			fmt.Fprintf(&b, "export type %s = Record<string, %s>;\n", d.name, value)
			continue
		}
		b.WriteString(head)
		for _, f := range d.fields {
			writeComment(&b, "  ", f.doc)
			mark := ""
			if f.optional {
				mark = "?"
			}
			fmt.Fprintf(&b, "  %s%s: %s;\n", f.name, mark, typeScript(f.typ))
		}
		b.WriteString(tail)
	}
	return []byte(b.String()), nil
}

func writeComment(b *strings.Builder, indent, doc string) {
	if doc != "" {
		fmt.Fprintf(b, "%s/** %s */\n", indent, strings.ReplaceAll(doc, "*/", `*\/`))
	}
}

func typeScript(e expression) string {
	switch e.kind {
	case isInteger, isNumber:
		return "number"
	case isAny:
		return "unknown"
	case isLiteral:
		return strconv.Quote(e.text)
	case isRef:
		return e.text
	case isMap:
		return "Record<string, " + typeScript(e.of[0]) + ">"
	case isList:
		if s := typeScript(e.of[0]); e.of[0].kind != isUnion {
			return s + "[]"
		}
		return "(" + typeScript(e.of[0]) + ")[]"
	case isUnion:
		return join(e.of, " | ", typeScript)
	}
	return string(e.kind) // string, boolean and null have the names of JSON Schema
}

func join(of []expression, separator string, write func(expression) string) string {
	var out []string
	for _, e := range of {
		if s := write(e); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return strings.Join(out, separator)
}

// pythonKeywords are the keywords of Python that may be the name of a JSON field.
var pythonKeywords = regexp.MustCompile(`^(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)$`)

// GeneratePython returns a module with the types of an OpenAPI document. The module needs
// NotRequired, which Python has since 3.11, only for type checkers.
func GeneratePython(openapi []byte) ([]byte, error) {
	defs, err := parse(openapi)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString(`"""The JSON documents of Brig's REST API. ` + madeBy + `"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import NotRequired
`)
	// Python evaluates base classes and unions at run time, so their operands must be defined
	// first.
	slices.SortStableFunc(defs, func(x, y definition) int { return cmp.Compare(pythonOrder(x), pythonOrder(y)) })
	for _, d := range defs {
		if d.union != nil {
			fmt.Fprintf(&b, "\n%s = %s\n", d.name, python(*d.union))
			continue
		}
		if slices.ContainsFunc(d.fields, func(f field) bool { return pythonKeywords.MatchString(f.name) }) {
			fmt.Fprintf(&b, "\n\n%s = TypedDict(\n    %q,\n    {\n", d.name, d.name)
			for _, f := range d.fields {
				fmt.Fprintf(&b, "        %q: %q,\n", f.name, pythonField(f))
			}
			b.WriteString("    },\n)\n")
			continue
		}
		base := d.base
		if base == "" {
			base = "TypedDict"
		}
		fmt.Fprintf(&b, "\n\nclass %s(%s):\n", d.name, base)
		for _, f := range d.fields {
			fmt.Fprintf(&b, "    %s: %s\n", f.name, pythonField(f))
		}
		if len(d.fields) == 0 {
			b.WriteString("    pass\n")
		}
	}
	return []byte(b.String()), nil
}

func pythonOrder(d definition) int {
	switch {
	case d.union != nil:
		return 2
	case d.base != "":
		return 1
	}
	return 0
}

func pythonField(f field) string {
	if f.optional {
		return "NotRequired[" + python(f.typ) + "]"
	}
	return python(f.typ)
}

func python(e expression) string {
	switch e.kind {
	case isString:
		return "str"
	case isInteger:
		return "int"
	case isNumber:
		return "float"
	case isBoolean:
		return "bool"
	case isNull:
		return "None"
	case isAny:
		return "Any"
	case isLiteral:
		return "Literal[" + strconv.Quote(e.text) + "]"
	case isRef:
		return e.text
	case isMap:
		return "dict[str, " + python(e.of[0]) + "]"
	case isList:
		return "list[" + python(e.of[0]) + "]"
	case isUnion:
		if e.of[0].kind == isLiteral {
			return "Literal[" + join(e.of, ", ", func(e expression) string { return strconv.Quote(e.text) }) + "]"
		}
		return "Union[" + join(e.of, ", ", python) + "]"
	}
	return "Any"
}
