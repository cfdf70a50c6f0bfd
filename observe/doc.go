// Package observe counts what happens, for Prometheus and for alerts. Metrics
// is the engine's brig.Observer and the brig.Meter of providers that are
// reached over a network; the collectors beside it look at what goes on, at
// the machine, and at what was spent.
//
// A provider's name is a label of everything that a provider does. A tenant's
// is not: there may be thousands, and each would multiply every series. Only
// tenants for whom an operator has set a budget have series, two each
// (Spending). All else about tenants is in the usage and in the log.
package observe
