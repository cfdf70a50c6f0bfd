//go:build !amd64 && !shim

package gvisor

// plainCPUID has nothing to do: no other processor's gVisor answers for it.
func plainCPUID() error { return nil }
