package alert

import (
	"bytes"
	"strings"

	"github.com/goccy/go-yaml"
)

type ruleFile struct {
	Groups []ruleGroup `yaml:"groups"`
}

type ruleGroup struct {
	Name  string     `yaml:"name"`
	Rules []promRule `yaml:"rules"`
}

type promRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// PrometheusRules returns rules as a rules file for a Prometheus that scrapes
// /metrics.
func PrometheusRules(rules []Rule) ([]byte, error) {
	g := ruleGroup{Name: "brig"}
	for _, r := range rules {
		p := promRule{
			Alert: r.Name, Expr: r.Expr(), Labels: map[string]string{"severity": string(r.Severity)},
			Annotations: map[string]string{"summary": r.toTemplate(r.Summary), "description": r.toTemplate(r.Hint)},
		}
		if r.For > 0 {
			p.For = formatDuration(r.For)
		}
		g.Rules = append(g.Rules, p)
	}
	var b bytes.Buffer
	b.WriteString("# Made by `brig alerts rules`: the rules that Brig itself looks at, for a Prometheus.\n")
	err := yaml.NewEncoder(&b, yaml.IndentSequence(true)).Encode(ruleFile{[]ruleGroup{g}})
	return b.Bytes(), err
}

// toTemplate replaces the placeholders of a text with Prometheus templates.
func (r Rule) toTemplate(text string) string {
	human := map[Unit]string{Share: "humanizePercentage", Seconds: "humanizeDuration", Number: "humanize"}[r.Unit]
	pairs := []string{"{value}", "{{ $value | " + human + " }}", "{threshold}", r.Unit.Format(r.Threshold)}
	for _, l := range labelsOf(text) {
		pairs = append(pairs, "{"+l+"}", "{{ $labels."+l+" }}")
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
