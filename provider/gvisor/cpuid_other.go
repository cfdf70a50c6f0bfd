//go:build !amd64 && !shim

package gvisor

// plainCPUID does nothing: on other processors gVisor does not emulate CPUID.
func plainCPUID() error { return nil }
