package mcp

import (
	"regexp"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// argumentOfField maps the fields that errors of the Service name to the arguments of the tools, if
// these have other names.
var argumentOfField = map[string]string{
	"ttl_ms": "ttl_seconds", "timeout_ms": "timeout_seconds", "limits.memory": "memory_mib", "limits.cpus": "cpus",
	"egress": "allow_hosts", "egress.rules": "allow_hosts", "secrets": "secrets", "workspace.name": "workspace",
	"default_user": "user", "default_cwd": "dir", "cwd": "dir", "shell": "command", "context_id": "context",
}

// fieldInText matches the fields in a text that are not also words.
var fieldInText = func() *regexp.Regexp {
	var names []string
	for field := range argumentOfField {
		if strings.ContainsAny(field, "._") {
			names = append(names, regexp.QuoteMeta(field))
		}
	}
	slices.Sort(names)
	return regexp.MustCompile(`\b(?:` + strings.Join(names, "|") + `)\b`)
}()

// nameArguments returns an error of the Service that names the arguments of the tools.
func nameArguments(e *brig.Error) *brig.Error {
	out := *e
	out.Field, out.Hint = argumentFor(e.Field), nameArgumentsIn(e.Hint)
	return &out
}

// argumentFor returns the argument that sets a field.
func argumentFor(field string) string {
	end := strings.IndexByte(field+"[", '[')
	name, ok := argumentOfField[field[:end]]
	if !ok {
		return field
	}
	// An item of the argument is a name instead of an object.
	if position, _, ok := strings.Cut(field[end:], "]"); ok {
		name += position + "]"
	}
	return name
}

// nameArgumentsIn replaces the fields in a text.
func nameArgumentsIn(text string) string {
	return fieldInText.ReplaceAllStringFunc(text, func(field string) string { return argumentOfField[field] })
}
