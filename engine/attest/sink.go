package attest

import (
	"context"
	"net"
	"net/netip"
	"syscall"
)

// sink listens on this host for connections that sandboxes must not be able to make. No goroutine
// accepts them: the kernel completes the handshake, which is enough to detect them.
type sink struct{ ln *net.TCPListener } // nil if no listener could be opened

// openSink opens a sink, and returns its address if it has one.
func openSink(ctx context.Context) (sink, []netip.AddrPort) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(ownAddress(), 0).String())
	if err != nil {
		return sink{}, nil
	}
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return sink{}, nil
	}
	a, err := netip.ParseAddrPort(ln.Addr().String())
	if err != nil {
		return sink{tcp}, nil
	}
	return sink{tcp}, []netip.AddrPort{a}
}

// wasReached reports whether a client has connected.
func (s sink) wasReached() (connected bool) {
	if s.ln == nil {
		return false
	}
	raw, err := s.ln.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		conn, _, err := syscall.Accept4(int(fd), syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK) // same flags as the listener
		if err == nil {
			connected = true
			_ = syscall.Close(conn)
		}
	})
	return connected && err == nil
}

func (s sink) close() {
	if s.ln != nil {
		_ = s.ln.Close()
	}
}

// ownAddress returns an IPv4 address of this host that other hosts could reach,
// or its loopback address.
func ownAddress() netip.Addr {
	list, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range list {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
				if found, ok := netip.AddrFromSlice(n.IP.To4()); ok {
					return found
				}
			}
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
