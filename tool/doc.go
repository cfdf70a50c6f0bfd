// Package tool implements the rules for running agents' tools. They define how a
// configuration is parsed, when a sandbox may be reused, which variables take
// precedence, and how arguments are converted to their types. They also define how
// values and errors are reported, and how the result of a function is protected
// against forgery.
//
// The rules are compatible with Letta, so that its clients can be used. The package
// itself starts no sandboxes; the engine applies the rules.
package tool
