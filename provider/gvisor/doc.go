// Package gvisor makes sandboxes with gVisor, linked into this very binary.
//
// Each sandbox has a shim: a process of its own that starts gVisor as a
// library, owns the cgroup, holds the lease's clock and the main program's
// log, and writes down how it all ended. The shim outlives the server, so a
// server that is killed finds its sandboxes again; when the shim dies, the
// kernel ends its sandbox. Three kinds of process result, all of one binary
// that is told apart by argv[0] (see Main): the shim, the gofer that holds the
// image's files, and the sentry, which is the kernel that the guest sees.
//
// The provider and the shim share one folder per sandbox (see layout) and one
// unix socket in it, over which the shim hands out connections to the agent.
// After that it is out of the way: bytes go between server and agent directly.
//
// Start reading at Provider.Create, then shim.go.
package gvisor
