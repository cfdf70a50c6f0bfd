// Package alert evaluates alert rules and sends notifications.
//
// One table (rules.go) contains all rules. Brig's own evaluation (Evaluator),
// the Prometheus rules file (PrometheusRules) and the panels of the Grafana
// dashboard (Dashboard) are derived from it. A webhook (Webhook) sends changes
// in the format of Prometheus's Alertmanager, so that existing Alertmanager
// receivers accept them.
package alert
