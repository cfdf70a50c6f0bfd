// Package observe exports metrics for Prometheus and for alerts. Metrics is the
// engine's brig.Observer and the brig.Meter of providers that are called over a
// network. Its collectors measure current activity, the host, and spending.
//
// The provider's name is a label of every provider metric. The tenant's name is
// not a label, since thousands of tenants would multiply every series. Only
// tenants with a budget have series, two each (Spending). All other tenant data
// is in the usage and in the log.
package observe
