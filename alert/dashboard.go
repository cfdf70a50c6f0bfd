package alert

import (
	"encoding/json"
	"fmt"
)

// panel is one chart of the dashboard.
type panel struct {
	title, unit string
	queries     []query
	rule        *Rule // the rule whose threshold is drawn
}

type query struct{ expr, legend string }

// units maps units to Grafana's names.
var units = map[Unit]string{Share: "percentunit", Seconds: "s", Number: "short"}

// section is a row of panels under a heading.
type section struct {
	title  string
	panels []panel
}

// sections returns the dashboard's panels, including those of rules.
func sections(rules []Rule) []section {
	one := func(title, unit, expr, legend string) panel {
		return panel{title: title, unit: unit, queries: []query{{expr, legend}}}
	}
	alerts := section{title: "Inputs of alerts"}
	for _, r := range rules {
		legend := "{{provider}}"
		switch r.Figure {
		case Budget:
			legend = "{{tenant}}"
		case RateLimit:
			legend = "{{provider}} {{region}}"
		case Memory, CostRatio:
			legend = "all"
		}
		p := one(r.Name, units[r.Unit], r.fillQuery(r.Measure), legend)
		p.rule = &r
		alerts.panels = append(alerts.panels, p)
	}
	quantiles := panel{title: "Execution time", unit: "s"}
	for _, q := range []string{"0.5", "0.95", "0.99"} {
		quantiles.queries = append(quantiles.queries, query{
			fmt.Sprintf("histogram_quantile(%s, sum by (provider, le) (rate(brig_execution_seconds_bucket[5m])))", q), "p" + q[2:] + " {{provider}}",
		})
	}
	return []section{
		{"Executions", []panel{
			one("Executions a second", "ops", "sum by (provider, status) (rate(brig_executions_total[5m]))", "{{provider}} {{status}}"),
			one("Success", "percentunit", "brig_execution_success_ratio", "{{provider}}"),
			quantiles,
			one("Execution time, as Brig sees it", "s", "brig_execution_percentile_seconds", "{{provider}} p{{percentile}}"),
			one("Mean, as Brig sees it", "s", "brig_execution_mean_seconds", "{{provider}}"),
			one("Errors a second", "ops", "sum by (operation, code) (rate(brig_errors_total[5m]))", "{{operation}} {{code}}"),
			one("Executions now", "short", "brig_executions_active", "{{provider}}"),
			one("Callers that wait", "short", "brig_queue_depth", "waiting"),
			one("Requests a second", "ops", "sum by (route, status) (rate(brig_http_requests_total[5m]))", "{{route}} {{status}}"),
		}},
		{"Sandboxes", []panel{
			one("Sandboxes now", "short", "brig_sandboxes_active", "{{provider}}"),
			one("Making a sandbox (median)", "s", "histogram_quantile(0.5, sum by (provider, for, le) (rate(brig_sandbox_create_seconds_bucket[5m])))", "{{provider}} {{for}}"),
			one("Could not be made", "ops", "sum by (provider, code) (rate(brig_sandbox_failures_total[5m]))", "{{provider}} {{code}}"),
			one("Ends", "ops", "sum by (provider, reason) (rate(brig_sandboxes_ended_total[5m]))", "{{provider}} {{reason}}"),
			one("Restarts an hour", "short", "sum by (provider, what) (increase(brig_restarts_total[1h]))", "{{provider}} {{what}}"),
			one("Pool: waiting", "short", "sum by (provider, language) (brig_pool_ready)", "{{provider}} {{language}}"),
			one("Pool: utilisation", "percentunit", "brig_pool_utilisation_ratio", "{{provider}} {{language}}"),
			one("Pool: hits", "percentunit", "sum by (provider) (rate(brig_pool_hits_total[5m])) / (sum by (provider) (rate(brig_pool_hits_total[5m])) + sum by (provider) (rate(brig_pool_misses_total[5m])))", "{{provider}}"),
			one("Trial", "s", "brig_trial_seconds", "{{provider}}"),
		}},
		{"Providers over a network", []panel{
			one("API latency (p95)", "s", "histogram_quantile(0.95, sum by (provider, region, le) (rate(brig_api_seconds_bucket[5m])))", "{{provider}} {{region}}"),
			one("API errors", "ops", "sum by (provider, region, code) (rate(brig_api_errors_total[5m]))", "{{provider}} {{region}} {{code}}"),
			one("Throttled", "ops", "sum by (provider, region) (rate(brig_api_throttled_total[5m]))", "{{provider}} {{region}}"),
			one("API availability", "percentunit", "brig_api_availability_ratio", "{{provider}} {{region}}"),
			one("Cost a day", "short", "sum by (provider) (increase(brig_cost_total[1d]))", "{{provider}}"),
			one("Cost today", "short", "brig_cost_today", "today"),
		}},
		{"Machine", []panel{
			one("Processors", "percentunit", "brig_host_cpu_used_ratio", "used"),
			one("Memory", "percentunit", "brig_host_memory_used_ratio", "used"),
			one("Disk", "percentunit", "brig_host_disk_used_ratio", "used"),
			one("Uptime", "s", "brig_uptime_seconds", "server"),
		}},
		alerts,
	}
}

// Dashboard returns a Grafana dashboard with the thresholds of rules.
func Dashboard(rules []Rule) ([]byte, error) {
	type object = map[string]any
	source := object{"type": "prometheus", "uid": "${source}"}
	var panels []object
	y, id := 0, 0
	for _, s := range sections(rules) {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": s.title, "gridPos": object{"x": 0, "y": y, "w": 24, "h": 1}})
		y++
		for i, p := range s.panels {
			id++
			var targets []object
			for n, q := range p.queries {
				targets = append(targets, object{"refId": string(rune('A' + n)), "expr": q.expr, "legendFormat": q.legend, "datasource": source})
			}
			defaults := object{"unit": p.unit}
			if p.rule != nil {
				steps := []object{{"value": nil, "color": "green"}, {"value": p.rule.Threshold, "color": "red"}}
				if p.rule.Under {
					steps = []object{{"value": nil, "color": "red"}, {"value": p.rule.Threshold, "color": "green"}}
				}
				defaults["thresholds"] = object{"mode": "absolute", "steps": steps}
				defaults["custom"] = object{"thresholdsStyle": object{"mode": "line"}}
			}
			panels = append(panels, object{
				"id": id, "type": "timeseries", "title": p.title, "datasource": source, "targets": targets,
				"gridPos":     object{"x": i % 3 * 8, "y": y + i/3*7, "w": 8, "h": 7},
				"fieldConfig": object{"defaults": defaults, "overrides": []object{}},
			})
		}
		y += (len(s.panels) + 2) / 3 * 7
	}
	b, err := json.MarshalIndent(object{
		"title": "Brig", "uid": "brig", "tags": []string{"brig"}, "schemaVersion": 39, "timezone": "browser", "refresh": "30s",
		"time":       object{"from": "now-1h", "to": "now"},
		"templating": object{"list": []object{{"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"}}},
		"panels":     panels,
	}, "", "  ")
	return append(b, '\n'), err
}
