// Package door is what all doors share: who is calling (Auth), whom browsers
// may reach (Guard), strict JSON (ReadJSON, Decode), errors as JSON
// (WriteError), and what stands around every handler (Wrap).
//
// A door decodes a request, calls a brig.Service once, and encodes the answer.
// It decides nothing about tenants, roles or limits.
package door
