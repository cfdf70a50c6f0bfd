// Package screen reads Python and JavaScript before it runs and finds what an
// operator does not want in it: imports, calls and attributes. It is advice
// and defence in depth. It is never the boundary: that is the sandbox, which
// holds what this package does not see.
//
// Sources are parsed by tree-sitter's grammars, compiled to WebAssembly and
// run by wazero: a parser of hostile input that can reach nothing, with bounds
// on its memory and its time. What is beyond the bounds is an error, and
// callers refuse it.
//
// # What is followed
//
// Names under which a module or a function is known (import os as x, f = eval,
// const {exec} = require("child_process"), globalThis.eval), constant strings
// (concatenated, escaped, in templates), and the usual ways to import by a
// string or to look up an attribute by one. A module that is named only at run
// time is a finding of its own. Scopes are not told apart: a name is what any
// part of the source makes of it.
//
// # What is not seen
//
//   - values that are passed on: through arguments, returns, containers, loops,
//     attributes of objects, exceptions
//   - strings that are computed ("so"[::-1], chr, join, decode), unless a module
//     is imported by one; formats that look up attributes ("{0.__class__}")
//   - what other code does: modules that are allowed and what they import
//     (random._os), files that come with the program or that it writes, packages
//     that it installs; deserialization; variables of the environment that
//     interpreters heed
//   - names that a source binds itself, as a parameter for example, and then
//     passes on without calling them
//   - what an earlier cell of a context left behind
//   - commands, and languages without a grammar here
package screen
