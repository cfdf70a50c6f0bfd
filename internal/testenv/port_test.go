package testenv_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/brig-run/brig/internal/testenv"
)

// TestPortIsExclusive verifies that a port is given to one test at a time, is outside the range
// from which the kernel assigns ports, and can be used.
func TestPortIsExclusive(t *testing.T) {
	used := map[int]bool{}
	for range 200 {
		port := testenv.Port(t)
		if used[port] {
			t.Errorf("port %d was given twice", port)
		}
		used[port] = true
	}
	for port := range used {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		if ln, err := net.Listen("unix", fmt.Sprintf("@brig-test-port-%d", port)); err == nil {
			ln.Close()
			t.Errorf("port %d has no lock", port)
		}
	}
}

// TestClosedPortRefusesConnections checks that the port refuses connections and that no other
// program can listen on it.
func TestClosedPortRefusesConnections(t *testing.T) {
	address := fmt.Sprintf("127.0.0.1:%d", testenv.ClosedPort(t))
	if c, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection: %v, %v", c, err)
	}
	if ln, err := net.Listen("tcp", address); err == nil {
		ln.Close()
		t.Error("another socket listens there")
	}
}
