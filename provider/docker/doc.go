// Package docker creates sandboxes with a local or remote Docker Engine. Each
// sandbox is one container, hardened as far as the engine allows, which uses
// runc or, if the engine has it, gVisor's runsc. With runc, the guest shares
// the host's kernel. That is hardening and not a boundary between tenants, and
// Capabilities reports it so.
//
// There is no shim on the engine's host. The agent replaces it as the
// container's init. It is in a volume that the provider fills once. It enforces
// the lease while no server is connected, and runs the main program, whose
// output is in the engine's log. The server connects to it through an exec of
// the engine that relays one session (see session.go). Every call uses a
// connection within that session. So a remote engine over TCP works as well as
// one on a unix socket.
//
// A server stores the data with which it recovers a sandbox in a separate
// directory (see folder.go). The engine's containers have labels, which
// identify containers that no server knows.
//
// A container has a separate network with only a loopback interface. If rules
// allow external access, its network link is an interface of the agent (see
// uplink.go).
//
// Start reading at Provider.Create.
package docker
