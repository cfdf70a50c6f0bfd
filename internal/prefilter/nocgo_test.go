//go:build !cgo

package prefilter

const withCgo = false
