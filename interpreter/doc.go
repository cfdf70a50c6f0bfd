// Package interpreter drives the interpreters that run inside sandboxes: it embeds the drivers,
// which are programs that let a language's interpreter accept requests, and communicates with
// them. It accesses an interpreter through a brig.Process and does not depend on how the process
// is isolated.
//
// # The protocol
//
// A driver starts with a socket on descriptor 3. Both sides send JSON objects on it, one per
// line, in UTF-8. Descriptors 1 and 2 are ordinary pipes: data that a program and its children
// write there is output, and never part of the protocol. A driver flushes its language's own
// buffers before it sends a message, so that output comes before the message that follows it. The
// guest can forge a driver's messages, so the host does not trust them.
//
// A driver sends Ready once, then carries out one request after the other:
//
//	{"op":"warm"}     load modules that programs are likely to use
//	{"op":"ping"}     respond with {"type":"pong","nonce":…}
//	{"op":"cell"}     run code in the interpreter's persistent namespace
//	{"op":"step"}     run a cell with the state that earlier cells left elsewhere
//	{"op":"program"}  run a whole program, once, and exit with its exit code
//
// Between a cell and its end the driver may send, in this order: taken, started, any number of
// display, at most one result, at most one error. A SIGINT interrupts the running cell. Without a
// running cell, it is ignored.
//
// # Nonces
//
// Code that runs in an interpreter can use the driver's descriptors: it can write lines to them,
// and take requests from them. Every request therefore has a fresh nonce, which all responses to
// it repeat. A message with another nonce, a line that is not a message and a request that did
// not reach the driver end the session with a ViolationError. So a message is never attributed to
// another request. The nonce is in the interpreter's memory while the request runs, so code can
// forge responses to its own request, but not responses to a later request, whose nonce does not
// exist yet.
package interpreter
