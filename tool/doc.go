// Package tool holds the rules by which agents' tools are run: what a
// configuration says, when a box may be used again, which variables win, how
// arguments get their types, what is told of a value or an error, and how what
// a function returned comes out of a box unforged.
//
// They are Letta's, as far as its clients can tell. Nothing here has a
// machine: the engine does what they say.
package tool
