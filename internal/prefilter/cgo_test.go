//go:build cgo

package prefilter

// withCgo is set in builds with cgo, which those with the race detector are.
const withCgo = true
