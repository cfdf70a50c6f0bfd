// Package gvisor creates sandboxes with gVisor, which is linked into this
// binary.
//
// Each sandbox has a shim. This separate process starts the sentry (the kernel
// that the guest sees), owns the cgroup, enforces the lease, writes the main
// program's log, and records how the sandbox ended. The shim outlives the
// server, so that a restarted server finds its sandboxes again. When the shim
// dies, the kernel ends its sandbox.
//
// The shim does not need gVisor's code, and a shim that is built with the tag
// "shim" does not contain it (cmd/brig-shim). The sentry is gVisor's own
// command line, which Main runs if argv[0] selects it. The sentry accesses the
// image's files itself, through mounts that the shim creates (see tree). Where
// such mounts are not possible, gVisor's own library starts the sentry and a
// gofer that serves the files. In that case the shim and the sentry run the
// same binary (see gofer.go).
//
// The provider and the shim share one directory per sandbox (see layout). The
// directory contains a Unix socket, over which the shim passes connections to
// the agent. The data then flows directly between the server and the agent.
//
// Start reading at Provider.Create, and continue with shim.go.
package gvisor
