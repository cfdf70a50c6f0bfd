// Package wire is the native API's JSON: the documents that the door at
// api/rest and the client exchange. It holds structs and how their odd fields
// are written, nothing else, and it knows nothing of the domain; the door and
// the client translate at their own thresholds.
//
// Names are snake_case. Durations are whole milliseconds in fields that end
// in _ms. Times are RFC 3339.
package wire
