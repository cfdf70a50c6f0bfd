// Package alert decides whether something is wrong with the service, and tells
// somebody.
//
// Rules stand in one table (rules.go), from which come what Brig itself looks
// at (Evaluator), the file of rules for a Prometheus (PrometheusRules), and the
// panels of a Grafana dashboard (Dashboard). What changes is told by a webhook
// in the format of Prometheus's Alertmanager (Webhook), so that whatever takes
// its alerts takes these.
package alert
