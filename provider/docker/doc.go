// Package docker makes sandboxes with a Docker Engine, here or elsewhere: a
// container each, hardened as far as the engine can, with runc or, where the
// engine has it, gVisor's runsc. With runc the host's kernel is the guest's:
// that is hardening and no boundary between tenants, and Capabilities says so.
//
// There is no shim on the engine's machine. The agent, the container's init,
// stands in for one: it is in a volume that the provider fills once, keeps the
// lease while no server is there, and runs the main program, whose output the
// engine's log has. The server reaches it through an exec of the engine's that
// relays one session (see session.go); every call is a connection within it. So
// an engine that is reached over TCP does as well as one on a unix socket.
//
// What a server must know to find a machine again is in a folder of its own
// (see folder.go); the engine's containers carry labels, by which those are
// found that nobody knows.
//
// A container is in a network of its own with nothing but a loopback. Its way out,
// where rules allow one, is an interface of the agent's (see uplink.go).
//
// Start reading at Provider.Create.
package docker
