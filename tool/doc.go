// Package tool holds the rules for running agents' tools. They define how a
// configuration is parsed, when a box may be reused, which variables take
// precedence, and how arguments get their types. They also define how values
// and errors are reported, and how a function's result leaves a box without
// being forged.
//
// The rules are compatible with Letta for its clients. The package starts no
// sandboxes: the engine applies the rules.
package tool
