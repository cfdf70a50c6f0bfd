package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
)

// listing is the output format of a list.
type listing struct {
	format string // "", "table", "json", or a template
	quiet  bool
	// empty is the hint to print for an empty list.
	empty string
}

// These are the formats of a list other than templates.
const (
	formatTable = "table"
	formatJSON  = "json"
)

// addListFlags adds the flags of a command that prints a list. The argument empty is the hint to
// print for an empty list.
func addListFlags(c *cli, cmd *cobra.Command, empty string) {
	f := cmd.Flags()
	f.StringVar(&c.show.format, "format", "", "table, json, or a Go `template` for each item, for example '{{.name}}', with the fields of the JSON")
	f.BoolVarP(&c.show.quiet, "quiet", "q", false, "print only the first column, without a header")
	before := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.show.empty = empty
		if err := c.show.check(&c.asJSON); err != nil {
			return err
		}
		return before(cmd, args)
	}
}

// check rejects an invalid format before the command calls the service, and
// sets asJSON for the format "json".
func (l listing) check(asJSON *bool) error {
	switch {
	case l.format == formatJSON:
		*asJSON = true
	case l.format == "" || l.format == formatTable:
	case !l.isTemplate():
		return brig.InvalidField("--format", "%q is not a format", brig.Clip(l.format, 80)).
			WithHint("use table, json, or a Go template, for example --format '{{.name}}'")
	default:
		if _, err := template.New("format").Parse(l.format); err != nil {
			return brig.InvalidField("--format", "the template is invalid: %s", strings.TrimPrefix(err.Error(), "template: ")).
				WithHint("for example --format '{{.name}}'; see https://pkg.go.dev/text/template")
		}
	}
	if *asJSON && l.quiet {
		return brig.InvalidField("--quiet", "cannot be combined with JSON").WithHint("leave out one of the two")
	}
	return nil
}

// isTemplate reports whether the format is a template.
func (l listing) isTemplate() bool { return strings.Contains(l.format, "{{") }

// list prints a list as JSON, as a table with a row for each item, or with the
// user's template.
func list[T any](c *cli, items []T, header string, row func(T) []string) error {
	return listOf(c, items, items, header, row)
}

// listOf is like list, but prints document as the JSON form of the items.
func listOf[T any](c *cli, document any, items []T, header string, row func(T) []string) error {
	if c.asJSON {
		return c.printJSON(document)
	}
	if c.show.isTemplate() {
		return printTemplate(c.stdout, c.show.format, document)
	}
	var rows [][]string
	for _, item := range items {
		rows = append(rows, row(item))
	}
	if c.show.quiet {
		return printFirst(c.stdout, rows)
	}
	if err := c.printTable(header, rows); err != nil {
		return err
	}
	if len(rows) == 0 && c.show.empty != "" && (c.terminal || isTerminal(c.stdout)) {
		fmt.Fprintln(c.stderr, c.show.empty)
	}
	return nil
}

// printFirst prints the first column, one line for each row.
func printFirst(w io.Writer, rows [][]string) error {
	for _, r := range rows {
		if _, err := fmt.Fprintln(w, sanitizeCell(r[0])); err != nil {
			return err
		}
	}
	return nil
}

// printTable writes rows in columns.
func (c *cli) printTable(header string, rows [][]string) error {
	w := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, header)
	for _, r := range rows {
		for i := range r {
			r[i] = sanitizeCell(r[i])
		}
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// printTemplate prints each item of a list with the user's template. The
// template has the fields of the JSON form.
func printTemplate(w io.Writer, format string, items any) error {
	t, err := template.New("format").Option("missingkey=zero").Parse(format)
	if err != nil {
		return err
	}
	if err := checkFields(t.Tree, items); err != nil {
		return err
	}
	objects, err := toJSONItems(items)
	if err != nil {
		return err
	}
	for _, item := range objects {
		var line bytes.Buffer
		if err := t.Execute(&line, item); err != nil {
			return brig.InvalidField("--format", "%s", strings.TrimPrefix(err.Error(), "template: ")).
				WithHint("--format json shows the fields")
		}
		if _, err := fmt.Fprintln(w, sanitizeText(strings.ReplaceAll(line.String(), "<no value>", ""))); err != nil {
			return err
		}
	}
	return nil
}

// sanitizeCells applies cell to all strings of a JSON value, so that a name from a
// guest cannot appear as several lines.
func sanitizeCells(v any) any {
	switch v := v.(type) {
	case string:
		return sanitizeCell(v)
	case []any:
		for i := range v {
			v[i] = sanitizeCells(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = sanitizeCells(v[name])
		}
	}
	return v
}

// toJSONItems returns the items of a list in the REST API's format, which encodes a list as an
// object with one array.
func toJSONItems(items any) ([]any, error) {
	b, err := json.Marshal(rest.JSON(items))
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	v = sanitizeCells(v)
	if object, ok := v.(map[string]any); ok {
		for _, v := range object {
			if array, ok := v.([]any); ok {
				return array, nil
			}
		}
	}
	array, _ := v.([]any) // null is an empty list
	return array, nil
}
