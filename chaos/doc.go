// Package chaos checks a server's guarantees while it kills the processes of
// the server and its sandboxes at random, and during long operation. It drives
// a brig.Service from outside and inspects the host. It does not depend on the
// engine, the provider or the store.
//
// Run kills processes. It then counts leaked resources and lost acknowledged
// results, and measures the time until the next server is ready. Soak applies a
// steady load and reports the trends of memory and latency.
package chaos
