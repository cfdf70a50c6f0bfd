package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// TestUnknownTemplateFieldListsKnownFields checks that the error for an unknown template field
// names the known fields, even for an empty list. Optional fields of an item are valid.
func TestUnknownTemplateFieldListsKnownFields(t *testing.T) {
	tenants := []*brig.Tenant{{Name: "a", Quota: brig.Quota{Sandboxes: 3}}}
	sandboxes := &brig.Page{Sandboxes: []*brig.Sandbox{{Spec: brig.Spec{Labels: map[string]string{"agent": "x"}}}}}
	for _, c := range []struct {
		format string
		items  any
		out    string
		err    string // the field, and a part of the hint
	}{
		{"{{.name}}", tenants, "a\n", ""},
		{"{{.budget}}|{{$.name}}", tenants, "|a\n", ""},
		{"{{.nme}}", tenants, "", ".nme: .budget, .ceilings, .created, .name"},
		{"{{.nme}}", []*brig.Tenant(nil), "", ".nme: .budget, "},
		{"{{if .name}}{{.quota.sandbox}}{{end}}", tenants, "", ".quota.sandbox: .quota."},
		{"{{if .name}}{{else}}{{printf \"%v\" .Name}}{{end}}", tenants, "", ".Name: .budget"},
		{"{{$.nme}}", tenants, "", ".nme: .budget"},
		{"{{range .nmes}}{{end}}", tenants, "", ".nmes: .budget"},
		{"{{with .quota}}{{.sandboxes}}{{end}}", tenants, "3\n", ""},
		{"{{.labels.agent}}{{.labels.none}}", sandboxes, "x\n", ""},
	} {
		var out bytes.Buffer
		err := printTemplate(&out, c.format, c.items)
		if c.err == "" {
			if err != nil || out.String() != c.out {
				t.Errorf("%s: %q, %v", c.format, out.String(), err)
			}
			continue
		}
		e := brig.AsError(err)
		field, hint, _ := strings.Cut(c.err, ": ")
		if err == nil || e.Field != "--format" || e.Message != "there is no field "+field || !strings.Contains(e.Hint, hint) {
			t.Errorf("%s: %q, %v", c.format, out.String(), err)
		}
	}
}
