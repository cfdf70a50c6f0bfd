// Package httpapi is the common part of all APIs: authentication (Auth),
// protection against browser attacks (Guard), strict JSON (ReadJSON, Decode),
// JSON errors (WriteError), and the wrapper of every handler (Wrap).
//
// An API decodes a request, calls brig.Service once, and encodes the response.
// It makes no decisions about tenants, roles or limits.
package httpapi
