// Package docker creates sandboxes with a local or remote Docker Engine. Each
// sandbox is one container, hardened as far as the engine allows. The
// container uses runc or, if the engine supports it, gVisor's runsc. With
// runc, the guest shares the host's kernel. Capabilities reports this as
// hardening and not as a boundary between tenants.
//
// There is no shim on the engine's host. Its tasks are performed by the agent,
// which is the container's init, in a volume that the provider fills once. The
// agent enforces the lease while no server is connected, and runs the main
// program, whose output is in the engine's log. The server connects to the
// agent through an exec of the engine that relays one session (see session.go).
// Every call uses a connection within that session. The provider therefore
// works with remote engines over TCP as well as with engines on a Unix socket.
//
// A server stores the data that it needs to recover a sandbox in a separate
// directory (see folder.go). The engine's containers have labels, by which a
// server identifies containers that it has no data about.
//
// A container has a separate network with only a loopback interface. If rules
// allow external access, its network link is an interface of the agent (see
// uplink.go).
//
// Start reading at Provider.Create.
package docker
