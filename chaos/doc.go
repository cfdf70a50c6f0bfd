// Package chaos holds a server to its promises while everything that a
// sandbox is made of is killed at random, and while it works for a long time.
// It drives a brig.Service from outside and looks at the host: it knows no
// engine, no provider and no store.
//
// Run kills and then counts: what is left on the host, which acknowledged
// results are lost, and how long the next server takes. Soak works steadily
// and says how memory and latency move.
package chaos
