package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// flagOfField maps API fields to flags whose names differ. The longest matching prefix applies.
// flagCandidates derives the flags of all other fields.
var flagOfField = map[string]string{
	"arguments": "args", "labels": "label", "secrets": "secret", "files": "file", "source_code": "FILE",
	"egress": "allow", "egress.rules": "allow", "egress.bandwidth": "bandwidth", "rules": "allow",
	"workspace": "workspace", "workspace.name": "workspace", "workspace.version": "workspace", "workspace.mode": "workspace",
	"workspace.prefixes": "writable", "workspace.capture": "capture",
	"events": "event", "types": "type", "url": "URL",
	"volumes": "volume", "volumes.name": "volume", "volumes.path": "volume",
	"tags": "tag", "placement": "provider", "placement.only": "provider-only", "placement.prefer": "prefer", "placement.regions": "region",
	"routing.split": "split", "split": "split", "regions": "region",
	"default_user": "user", "default_cwd": "cwd",
	"scopes": "scope", "sandboxes": "sandbox", "hosts": "host", "places": "place", "context_id": "context",
	"quota.execution_ms_per_day": "execution-time-per-day", "quota.cpu_ms_per_day": "cpu-time-per-day",
	"quota.egress_bytes_per_day": "egress-per-day",
	"ceilings.limits.memory":     "max-memory", "ceilings.limits.cpus": "max-cpus", "ceilings.limits.disk": "max-disk",
	"ceilings.max_ttl_ms": "max-ttl", "ceilings.max_life_ms": "max-life", "ceilings.max_pause_ms": "max-pause", "ceilings.max_timeout_ms": "max-timeout",
	"config": "set", "terms.second": "second", "agent_state": "state", "json_schema": "schema",
}

// argumentOfField maps fields of the API to positional arguments, as named in a command's usage
// line.
var argumentOfField = map[string][]string{
	"name": {"NAME", "SANDBOX"}, "sandbox": {"NAME", "SANDBOX"}, "image": {"IMAGE", "REF"}, "ref": {"REF", "IMAGE"},
	"path": {"PATH"}, "command": {"CMD"}, "shell": {"SCRIPT"}, "pid": {"PID"}, "port": {"PORT"}, "signal": {"SIGNAL"},
	"id": {"ID"}, "version": {"VERSION"}, "code": {"FILE"}, "body": {"FILE"}, "archive": {"FILE"}, "template": {"TEMPLATE"},
}

var (
	// indexed matches the position in a list, for example "[0]" in "files[0].path".
	indexed = regexp.MustCompile(`\[[^\]]*\]`)
	// apiField matches words of a hint that can only be fields of the API.
	apiField = regexp.MustCompile(`\b[a-z]+(?:_[a-z]+)*(?:\.[a-z]+(?:_[a-z]+)*)+\b|\b[a-z]+(?:_[a-z]+)+\b`)
	// changedField matches the part of a hint that names fields to change.
	changedField = regexp.MustCompile(`\b(?:leave out|raise|lower) [a-z_.]+(?:(?:,| or| and) [a-z_.]+)*`)
	fieldWord    = regexp.MustCompile(`[a-z][a-z_.]*[a-z]`)
)

// replaceFieldsWithFlags returns an API error in command-line terms: fields in the message and in
// the hint are replaced with the command's flags and arguments.
func replaceFieldsWithFlags(cmd *cobra.Command, e *brig.Error) *brig.Error {
	if cmd == nil || e.Kind == brig.InvalidConfig {
		return e // the fields of a configuration file keep their names
	}
	out := *e
	if name, ok := flagFor(cmd, e.Field); ok {
		out.Field = name
	}
	switch command, ok := listingCommands[e.Hint]; {
	case e.Kind == brig.Unauthenticated && strings.Contains(e.Hint, "Authorization:"):
		out.Hint = "give a valid key with --key or BRIG_API_KEY, or ask an administrator for one"
	case e.Hint == brig.HintValueAgain:
		out.Hint = "give the value again, without --keep-value: the change lets it go further than before"
	case ok:
		out.Hint = "list what exists with: " + command
	default:
		out.Hint = replaceFieldsInHint(cmd, e.Hint)
	}
	return &out
}

// listingCommands maps hints of the API to the commands to suggest instead.
var listingCommands = map[string]string{
	"list sandboxes to see what exists":                "brig sandbox ls",
	"list workspaces to see what exists":               "brig workspace ls",
	"list webhooks to see what exists":                 "brig webhook ls",
	"list volumes to see what exists":                  "brig volume ls",
	"list secrets to see what exists":                  "brig secret ls",
	"set it first, or list secrets to see what exists": "brig secret ls",
	"list the sandbox's contexts to see what exists":   "brig sandbox context ls NAME",
	"list its versions to see what exists":             "brig workspace versions NAME",
	"list the versions to see what exists":             "brig workspace versions NAME",
	"list the sandbox's processes":                     "brig sandbox ps NAME",
	"list its files to see what exists":                "brig workspace files NAME",
}

// replaceFieldsInHint replaces the fields in a hint with a command's flags.
func replaceFieldsInHint(cmd *cobra.Command, hint string) string {
	if cmd == nil {
		return hint
	}
	replace := func(field string) string {
		if name, ok := flagFor(cmd, field); ok && strings.HasPrefix(name, "--") {
			return name
		}
		return field
	}
	hint = changedField.ReplaceAllStringFunc(hint, func(part string) string {
		verb, fields, _ := strings.Cut(strings.Replace(part, "leave out", "leave-out", 1), " ")
		return strings.Replace(verb, "leave-out", "leave out", 1) + " " + fieldWord.ReplaceAllStringFunc(fields, replace)
	})
	return apiField.ReplaceAllStringFunc(hint, replace)
}

// flagFor returns the flag or the argument of a command that sets a field. It returns false if the
// command has no such flag or argument.
func flagFor(cmd *cobra.Command, field string) (string, bool) {
	field = indexed.ReplaceAllString(field, "")
	if field == "" || strings.HasPrefix(field, "-") {
		return field, false
	}
	for _, name := range flagCandidates(field) {
		if f := cmd.Flag(name); f != nil && !f.Hidden {
			return "--" + name, true
		}
	}
	usage := argumentsOf(cmd)
	for _, argument := range argumentOfField[field] {
		if slices.Contains(usage, argument) {
			return argument, true
		}
	}
	return field, false
}

// flagCandidates returns the possible flags of a field, most likely first: the flag of the longest
// prefix in flagOfField, and flags derived from the field's name.
func flagCandidates(field string) (names []string) {
	for prefix := field; prefix != ""; prefix = prefix[:max(0, strings.LastIndexByte(prefix, '.'))] {
		if name, ok := flagOfField[prefix]; ok {
			names = append(names, name)
			break
		}
	}
	for _, prefix := range []string{"limits.", "quota.", "ceilings.", "terms.", "routing.", "require."} {
		if rest, ok := strings.CutPrefix(field, prefix); ok {
			if prefix == "require." {
				rest = "require"
			}
			names = append(names, flagName(rest))
		}
	}
	if !strings.Contains(field, ".") {
		names = append(names, flagName(field))
	}
	return names
}

// flagName converts a field's name to a flag's name without the unit.
func flagName(field string) string {
	return strings.ReplaceAll(strings.TrimSuffix(field, "_ms"), "_", "-")
}

// argumentsOf returns the names of a command's positional arguments, in order.
func argumentsOf(cmd *cobra.Command) (names []string) {
	for _, word := range strings.FieldsFunc(cmd.Use, func(r rune) bool { return strings.ContainsRune(" []()|:@…", r) }) {
		if word == strings.ToUpper(word) && !strings.HasPrefix(word, "-") {
			names = append(names, word)
		}
	}
	return names
}

// nearestFlag returns the command's flag whose name is most similar to a wrong
// one, or an empty string.
func nearestFlag(cmd *cobra.Command, unknown string) (nearest string) {
	least := 3
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := httpapi.Distance(f.Name, unknown); !f.Hidden && (d < least || len(unknown) > 2 && least == 3 && strings.HasPrefix(f.Name, unknown)) {
			nearest, least = f.Name, min(d, 2)
		}
	})
	return nearest
}
