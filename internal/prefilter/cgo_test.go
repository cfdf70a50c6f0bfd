//go:build cgo

package prefilter

// withCgo is true in builds with cgo, which include those with the race
// detector.
const withCgo = true
