// Package v1 defines the JSON of the native API: the documents that api/rest
// and the client exchange. It contains only structs, the encodings of their
// special fields, and their conversion from and to the domain types of the root
// package, which the API and the client share: FromX(x) X, and X.Domain(). A
// request's Domain method returns an error if a field is not valid, unless the
// request has a separate Check method.
//
// Names are snake_case. Durations are whole milliseconds in fields that end in
// _ms. Times are in RFC 3339 format.
package v1
