package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig/alert"
	"github.com/brig-run/brig/api/httpapi"
)

// generated maps the files that `make docs` generates from the alert rules to the arguments of the
// commands that print them.
var generated = map[string][]string{
	"../../docs/prometheus-rules.yml": {"alerts", "rules"},
	"../../docs/grafana.json":         {"metrics", "dashboard"},
}

func TestGeneratedFilesMatchCommands(t *testing.T) {
	for file, args := range generated {
		var out bytes.Buffer
		if code := execute(args, strings.NewReader(""), &out, io.Discard); code != 0 {
			t.Fatalf("brig %v exits with %d", args, code)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, out.Bytes()) {
			t.Errorf("%s is old: run `make docs`", file)
		}
	}
}

// readExportedMetrics returns the names of all metrics that a server exports.
func readExportedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	s := newAlertHarness(t)
	if _, err := httpapi.NewMetrics(s.registry); err != nil {
		t.Fatal(err)
	}
	s.registry.MustRegister(firing{s.alerts}, buildInfo())
	s.registry.MustRegister(httpapi.NewLimiter(httpapi.Limits{}).Collectors()...)
	ch := make(chan *prometheus.Desc, 1000)
	s.registry.Describe(ch)
	close(ch)
	names := map[string]bool{}
	for d := range ch {
		names[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	return names
}

// findUnknownMetrics returns the metric names in a text that are not in names.
func findUnknownMetrics(text string, names map[string]bool) (out []string) {
	for _, name := range regexp.MustCompile(`\bbrig_[a-z0-9_]+`).FindAllString(text, -1) {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if !names[name] && !names[base] {
			out = append(out, name)
		}
	}
	return out
}

// TestDocumentedMetricsExist checks that every metric in the rules, the dashboard
// and the metrics page exists, and that the page lists all metrics.
func TestDocumentedMetricsExist(t *testing.T) {
	names := readExportedMetrics(t)
	if len(names) < 40 {
		t.Fatalf("a server has only %d metrics", len(names))
	}
	for _, file := range []string{"../../docs/prometheus-rules.yml", "../../docs/grafana.json", "../../docs/OBSERVABILITY.md"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if lost := findUnknownMetrics(string(b), names); len(lost) > 0 {
			t.Errorf("%s names %v, which no server has", file, lost)
		}
		if strings.HasSuffix(file, ".md") {
			for name := range names {
				if !strings.Contains(string(b), "`"+name+"`") {
					t.Errorf("%s does not say what %s is", file, name)
				}
			}
		}
	}
	if len(findUnknownMetrics("sum(brig_nonsense_total)", names)) != 1 {
		t.Error("a metric that is not there is not missed")
	}
}

// TestDashboardIsValid checks that Grafana can load the dashboard: each panel has a
// query, and panels do not overlap.
func TestDashboardIsValid(t *testing.T) {
	b, err := alert.Dashboard(alert.Rules())
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title  string
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	panelAt := map[[2]int]string{}
	ids := map[int]bool{}
	rules := 0
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels are number %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if o := panelAt[[2]int{x, y}]; o != "" || x >= 24 {
					t.Fatalf("%q lies on %q", p.Title, o)
				}
				panelAt[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Targets[0].Expr == "" || strings.Contains(p.Targets[0].Expr, "{window}") {
			t.Errorf("%q asks %+v", p.Title, p.Targets)
		}
		if strings.HasPrefix(p.Title, "Brig") {
			rules++
		}
	}
	if rules != len(alert.Rules()) {
		t.Errorf("%d of %d rules have a panel", rules, len(alert.Rules()))
	}
}

// TestPrometheusAcceptsRules checks the rules with promtool, for the default configuration and for
// a modified one.
func TestPrometheusAcceptsRules(t *testing.T) {
	tool := findPromtool(t)
	config := filepath.Join(t.TempDir(), "brig.yaml")
	text := "alerts: {rules: {BrigErrorRate: {threshold: 0.1, window: 90s, for: 0s, least: 3}, BrigMemoryHigh: {off: true}}}"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"defaults": {"alerts", "rules"}, "configured": {"--config", config, "alerts", "rules"}} {
		var out bytes.Buffer
		if code := execute(args, strings.NewReader(""), &out, io.Discard); code != 0 {
			t.Fatalf("%s: exits with %d", name, code)
		}
		file := filepath.Join(t.TempDir(), "rules.yml")
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if output, err := exec.Command(tool, "check", "rules", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, output)
		}
		if configured := strings.Contains(out.String(), "[1m30s]") || strings.Contains(out.String(), "[90s]"); configured != (name == "configured") ||
			strings.Contains(out.String(), "BrigMemoryHigh") == configured || strings.Contains(out.String(), "> 0.1 ") != configured {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}

// TestAlertsConfigRejectsInvalidValues checks that invalid values are rejected with an error that
// names the field.
func TestAlertsConfigRejectsInvalidValues(t *testing.T) {
	for text, want := range map[string]string{
		"alerts: {rules: {Nonsense: {off: true}}}":                     `alerts.rules: no rule "Nonsense"`,
		"alerts: {rules: {BrigMemoryHigh: {window: 1m}}}":              "alerts.rules.BrigMemoryHigh.window",
		"alerts: {rules: {BrigErrorRate: {window: 1ms}}}":              "alerts.rules.BrigErrorRate is out of bounds",
		"alerts: {rules: {BrigErrorRate: {for: -1s}}}":                 "alerts.rules.BrigErrorRate is out of bounds",
		"alerts: {webhook: {url: \"http://alerts.example/\"}}":         "alerts.webhook.url",
		"alerts: {webhook: {url: \"http://[::1]/\", bearer: /nosuch}}": "alerts.webhook.bearer",
		"rates: {gvisor: {per_second: -1}}":                            "rates.gvisor",
	} {
		file := filepath.Join(t.TempDir(), "brig.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := (&cli{configFile: file}).loadConfig()
		if err != nil {
			t.Fatal(err)
		}
		_, err = cfg.Alerts.rules()
		if err == nil {
			_, err = cfg.Alerts.webhook(nil)
		}
		if err == nil {
			_, err = cfg.rates()
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
