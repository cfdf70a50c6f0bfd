package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"time"
)

const (
	resolveTimeout = 5 * time.Second
	dialTimeout    = 10 * time.Second
)

// blockedError is the error of a connection that the rules do not allow.
type blockedError struct {
	reason string
	rule   int
	addr   netip.Addr
}

// Error implements error.
func (r *blockedError) Error() string { return r.reason }

// dial connects to a name that the rules allow. It resolves the name once, checks each address, and
// dials only checked addresses.
func (s *Session) dial(ctx context.Context, host string, port int) (net.Conn, netip.Addr, error) {
	addrs, err := s.resolve(ctx, host)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	last := error(&blockedError{"the name has no address", -1, netip.Addr{}})
	for _, a := range addrs {
		a = a.Unmap()
		if r := s.judgeAddress(a, port); r != nil {
			last = r
			continue
		}
		c, err := s.dialAddr(ctx, a, port)
		if err != nil {
			last = err
			continue
		}
		if r := s.judgeAddress(a, port); r != nil { // this host may have been assigned the address since
			_ = c.Close()
			last = r
			continue
		}
		return c, a, nil
	}
	return nil, netip.Addr{}, last
}

// resolve returns the addresses of a name.
func (s *Session) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	select {
	case s.lookupSlots <- struct{}{}:
		defer func() { <-s.lookupSlots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// The trailing dot disables the host's search list.
	return s.Resolver.LookupNetIP(ctx, "ip", host+".")
}

func (s *Session) dialAddr(ctx context.Context, a netip.Addr, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return s.Dial(ctx, "tcp", net.JoinHostPort(a.String(), strconv.Itoa(port)))
}

// describeDialError returns a short reason why a connection failed.
func describeDialError(err error) (reason string, rule int, addr netip.Addr) {
	if r, ok := errors.AsType[*blockedError](err); ok {
		return r.reason, r.rule, r.addr
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		if e.IsNotFound {
			return "the name is unknown", -1, netip.Addr{}
		}
		return "the name cannot be resolved", -1, netip.Addr{}
	}
	return "it cannot be reached", -1, netip.Addr{}
}
