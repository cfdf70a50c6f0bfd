// Package brig defines the nouns of the system and nothing else: sandboxes,
// commands, programs, images, limits, actors, and the interfaces that connect
// the rooms a request passes through. It imports only the standard library.
//
// # The nouns
//
// A Sandbox is one isolated place, as its tenant sees it: a record with a
// Name, a Spec (what was asked for) and a State (what is observed). Behind a
// running sandbox stands an Instance, the live machine, which a Provider made
// and finds again by its Handle after a restart. A sandbox starts from an
// Image, files that are known by their digest. It lives under a Lease: until
// a moment that use and Extend move forward.
//
// A Command is asked for; a process runs; a Result says how it ended. To Exec
// is to run a command in a sandbox that exists. To Run is to run a Program,
// source code in a Language, in a sandbox of its own that is gone afterwards.
//
// An Actor calls, on behalf of a Tenant, in a Role. Limits bound one sandbox.
//
// # The one path
//
//	client ─▶ door ───────▶ engine ───────────▶ provider ─────▶ guest ─▶ process
//	         decode        gate: who, may, fits,  driver's own    agent frames
//	         wire→brig     record, note           language
//	           ◀── encode ─┴── Result | Error; bytes through io.Writer ◀──
//
// A door (REST, the command line) decodes a request and calls a Service once.
// The engine is the Service that decides; the client is the same Service over
// the network. Calls go down, answers come up, and the one asynchronous fact,
// that a machine has died, is Instance.Done.
//
// # Compatibility
//
// This package, client, guest, and provider/providertest keep their promises
// between minor versions. Everything else may change.
package brig
