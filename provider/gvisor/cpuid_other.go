//go:build !amd64 && !shim

package gvisor

// plainCPUID does nothing, because gVisor emulates CPUID only on amd64.
func plainCPUID() error { return nil }
