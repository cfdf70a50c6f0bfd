// Package gvisor makes sandboxes with gVisor, linked into this very binary.
//
// Each sandbox has a shim: a process of its own that starts the sentry, the
// kernel that the guest sees, owns the cgroup, holds the lease's clock and the
// main program's log, and writes down how it all ended. The shim outlives the
// server, so a server that is killed finds its sandboxes again; when the shim
// dies, the kernel ends its sandbox.
//
// The shim needs nothing of gVisor, and has nothing of it when it is built with
// the tag "shim" (cmd/brig-shim). The sentry is gVisor's own command line, in a
// binary that is told apart by argv[0] (see Main). It works on the image's files
// itself, through mounts that the shim gives it (see tree). Where such mounts
// cannot be made, gVisor's own library starts the sentry, and a gofer that holds
// the files: then the shim is that other binary, too (see gofer.go).
//
// The provider and the shim share one folder per sandbox (see layout) and one
// unix socket in it, over which the shim hands out connections to the agent.
// After that it is out of the way: bytes go between server and agent directly.
//
// Start reading at Provider.Create, then shim.go.
package gvisor
