// Package screen checks Python and JavaScript sources before they run, and finds
// constructs that an operator forbids: imports, calls and attributes. It is an
// advisory measure of defense in depth, not the security boundary. The boundary is
// the sandbox, which also isolates code that passes the checks of this package.
//
// Tree-sitter's grammars, compiled to WebAssembly and run by wazero, parse the
// sources. Thus, hostile input is parsed without access to the host, and with
// limits on memory and time. A source that exceeds the limits causes an error, and
// callers reject it.
//
// # Followed
//
// Aliases of a module or a function are followed (import os as x, f = eval, const
// {exec} = require("child_process"), globalThis.eval). Constant strings
// (concatenated, escaped, in templates) are followed, too, as are the usual ways to
// import a module or look up an attribute by a string. An import whose name is
// known only at run time is also a finding. Scopes are not distinguished: a name
// has all values that any part of the source assigns to it.
//
// # Not followed
//
//   - values that are passed on: through arguments, return values, containers,
//     loops, attributes of objects, exceptions
//   - computed strings ("so"[::-1], chr, join, decode), unless they are the
//     name of an imported module; formats that look up attributes
//     ("{0.__class__}")
//   - other code: allowed modules and their imports (random._os), files that
//     belong to the program or that it writes, packages that it installs;
//     deserialization; environment variables that affect interpreters
//   - names that a source binds itself, for example as a parameter, and passes
//     on without calling them
//   - the state of earlier cells of a context
//   - commands, and languages without a grammar here
package screen
