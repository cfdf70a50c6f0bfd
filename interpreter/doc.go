// Package interpreter drives the interpreters that wait inside sandboxes: it
// carries the drivers, the programs that make a language's interpreter one
// that takes orders, and it speaks with them. It sees an interpreter as a
// brig.Process and knows nothing of what isolates it.
//
// # The protocol
//
// A driver is started with a socket on descriptor 3. Both sides send JSON
// objects on it, one to a line, in UTF-8. Descriptors 1 and 2 are ordinary
// pipes: what a program and everything that it starts write there is its
// output, and never part of the protocol. A driver flushes its language's own
// buffers before it sends a message, so that output comes before the message
// that follows it. Whatever a driver says is the word of the guest.
//
// A driver says Ready once, then carries out one order after the other:
//
//	{"op":"warm"}     load what programs are likely to use
//	{"op":"ping"}     answer {"type":"pong","nonce":…}
//	{"op":"cell"}     run code in the interpreter's own name space, and keep it
//	{"op":"step"}     run a cell with what the cells before have left elsewhere
//	{"op":"program"}  run a whole program, once, and exit as it does
//
// Between cell and its end it may say, in this order: started, any number of
// display, at most one result, at most one error. A SIGINT while a cell runs
// interrupts it; while none runs it is ignored.
package interpreter
