//go:build !amd64 && !shim

package gvisor

// stopCPUIDFaults does nothing, because gVisor emulates CPUID only on amd64.
func stopCPUIDFaults() error { return nil }
