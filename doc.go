// Package brig defines the domain types of the system: sandboxes, commands,
// programs, images, limits, actors, and the interfaces between the packages
// that handle a request. It imports only the standard library.
//
// # Domain types
//
// A Sandbox is one isolated environment, from the perspective of its tenant. It
// is a record with a Name, a Spec (the request) and a State (the observation).
// A running sandbox has an Instance. A Provider creates the Instance and
// recovers it by its Handle after a restart. A sandbox starts from an Image, a
// set of files with a digest. The sandbox ends when its lease expires; each use
// and Extend renew the lease.
//
// A Command is a request to run a process. A Result describes how the process
// ended. Exec runs a command in an existing sandbox. Run runs a Program, source
// code in a Language, in an ephemeral sandbox.
//
// An Actor makes calls on behalf of a Tenant, with the rights of a Role. Limits
// bound one sandbox.
//
// # The path of a request
//
//	client ─▶ API ────────▶ engine ───────────▶ provider ─────▶ guest ─▶ process
//	         decode        gate, quota,          driver's own    agent frames
//	         wire→brig     record, placement     protocol
//	           ◀── encode ─┴── Result | Error; bytes through io.Writer ◀──
//
// An API (REST, the command line) decodes a request and calls a Service once.
// The engine is the Service that makes decisions. The client implements the
// same Service over the network. Only one event is asynchronous: Instance.Done
// reports that an instance has ended.
//
// # Compatibility
//
// The packages brig, client, guest and provider/providertest remain compatible
// between minor versions. Everything else may change.
package brig
