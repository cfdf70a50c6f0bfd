package brig_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func TestTemplateCheck(t *testing.T) {
	cmd := &brig.Command{Argv: []string{"x"}}
	for field, bad := range map[string]brig.Template{
		"name":           {Name: "a/b"},
		"start":          {Name: "a", Start: cmd, Entrypoint: true},
		"ready":          {Name: "a", ReadyTimeout: time.Second},
		"ready_timeout":  {Name: "a", Ready: cmd, ReadyTimeout: time.Hour},
		"ready_interval": {Name: "a", Ready: cmd, ReadyInterval: -1},
		"cwd":            {Name: "a", Dir: "srv"},
		"imports":        {Name: "a", BootOnce: true, Imports: []string{"numpy", "os;x"}},
		"packages":       {Name: "a", Image: "a/b:c", Packages: []string{"git"}},
	} {
		if e := brig.AsError(bad.Check()); e == nil || e.Field != field || e.Kind != brig.InvalidArgument || e.Hint == "" {
			t.Errorf("%+v: %v, want an error about %s with a hint", bad, e, field)
		}
	}
	if e := brig.AsError(brig.Template{Name: "a", Imports: []string{"numpy"}}.Check()); e == nil || e.Field != "imports" {
		t.Errorf("imports without boot_once: %v", e)
	}
	good := brig.Template{Name: "My_Own.v1", BootOnce: true, Imports: []string{"numpy", "xml.dom.minidom"}, Image: "x", Start: cmd, Ready: cmd, User: "root", Dir: "/srv", Packages: []string{"git"}}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, ok := range map[string]bool{"": false, "-a": false, ".": false, "a\n": false, "a b": false, strings.Repeat("a", 64): false, "A.b_c-d": true} {
		if brig.ValidTemplate(name) != ok {
			t.Errorf("%q can be a name: %t", name, !ok)
		}
	}
	filled := brig.Template{Name: "a", Ready: cmd}.Fill()
	if filled.Image != "a" || filled.ReadyTimeout != brig.DefaultReadyTimeout || filled.ReadyInterval != brig.DefaultReadyInterval {
		t.Errorf("filled: %+v", filled)
	}
}

// TestTemplateApply checks that fields that the caller sets override those of the
// template.
func TestTemplateApply(t *testing.T) {
	tmpl := brig.Template{
		Name: "a", Image: "img", Limits: brig.Limits{Memory: 1, CPUs: 2}, TTL: time.Hour, User: "root", Dir: "/srv",
		Env: map[string]string{"A": "template", "B": "template"},
	}
	spec := tmpl.Apply(brig.Spec{Template: "a", Limits: brig.Limits{Memory: 5}, Env: map[string]string{"B": "caller"}, Dir: "/mine"})
	if spec.Image != "img" || spec.Limits != (brig.Limits{Memory: 5, CPUs: 2}) || spec.TTL != time.Hour || spec.User != "root" || spec.Dir != "/mine" ||
		!maps.Equal(spec.Env, map[string]string{"A": "template", "B": "caller"}) || tmpl.Env["B"] != "template" {
		t.Errorf("%+v", spec)
	}
}
