package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
)

// Port returns a TCP port of the loopback address that no other test gets until this test ends.
// It is for programs that cannot listen on port 0 and report their address, and for servers
// that restart on the same port.
//
// A port that the kernel chose is not safe after it is closed, because the kernel may assign it
// to the next connection of any process. Therefore, Port chooses a port outside of the kernel's
// range. The lock between test processes is an abstract Unix socket, which belongs to the same
// network namespace as the port and is released when its process exits.
func Port(t testing.TB) int {
	t.Helper()
	low, high := 10_000, 65_000
	if first, last := readEphemeralPorts(); first > low+5_000 {
		high = first
	} else if last < high-2_000 {
		low = last + 1
	}
	for range 1000 {
		port := low + rand.IntN(high-low)
		lock, err := net.Listen("unix", fmt.Sprintf("@brig-test-port-%d", port))
		if err != nil {
			continue // another test has reserved the port
		}
		ln, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			lock.Close()
			continue // another program listens on the port
		}
		ln.Close()
		t.Cleanup(func() { lock.Close() })
		return port
	}
	t.Fatalf("no unused port from %d to %d", low, high)
	return 0
}

// readEphemeralPorts returns the range from which the kernel chooses ports.
func readEphemeralPorts() (first, last int) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(b), &first, &last)
	}
	if err != nil {
		return 32_768, 60_999 // the default of Linux
	}
	return first, last
}

// ClosedPort returns a TCP port of the loopback address that refuses connections
// until the test ends. A socket that does not listen holds the port, so that no
// other program gets it.
func ClosedPort(t testing.TB) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	address, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return address.(*syscall.SockaddrInet4).Port
}
