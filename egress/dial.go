package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/brig-run/brig"
)

const (
	resolveTime = 5 * time.Second
	dialTime    = 10 * time.Second
)

// barred is a connection that the rules do not allow.
type barred struct {
	why  string
	rule int
	addr netip.Addr
}

// Error implements error.
func (r *barred) Error() string { return r.why }

// dial connects to a name that the rules allow. It is resolved once, each
// address is judged, and what is dialled is an address that was.
func (s *Session) dial(ctx context.Context, host string, port int) (net.Conn, netip.Addr, error) {
	look, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	// The dot keeps the machine's own search list out of it.
	addrs, err := s.Resolver.LookupNetIP(look, "ip", host+".")
	if err != nil {
		return nil, netip.Addr{}, err
	}
	last := error(&barred{"the name has no address", -1, netip.Addr{}})
	for _, a := range addrs {
		a = a.Unmap()
		if r := s.judge(a, port); r != nil {
			last = r
			continue
		}
		c, err := s.reach(ctx, a, port)
		if err == nil {
			return c, a, nil
		}
		last = err
	}
	return nil, netip.Addr{}, last
}

// judge says why an address that a name has resolved to is not connected to.
func (s *Session) judge(a netip.Addr, port int) *barred {
	rules := s.rules()
	verdict, rule := rules.Resolved(a, port)
	switch {
	case verdict != brig.Allowed:
		why := "the name resolves to an address of a private or special network"
		if rule >= 0 {
			why = "the name resolves to an address that a rule denies"
		}
		return &barred{why, rule, a}
	case s.Own(a) && !namesIt(rules, rule, a):
		return &barred{"the name resolves to an address of this machine", -1, a}
	}
	return nil
}

// namesIt reports whether a rule is about this address itself: a network in
// which this machine has an address is not its own.
func namesIt(rules *brig.Egress, rule int, a netip.Addr) bool {
	if rule < 0 {
		return false
	}
	p, err := brig.ParseNetwork(rules.Rules[rule].CIDR)
	return err == nil && (p.IsSingleIP() || p.Addr().IsLoopback()) && p.Contains(a)
}

func (s *Session) reach(ctx context.Context, a netip.Addr, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	return s.Dial(ctx, "tcp", net.JoinHostPort(a.String(), strconv.Itoa(port)))
}

// isOwn reports whether one of this machine's interfaces has an address. When
// nobody can say, it is.
func isOwn(a netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, i := range list {
		if p, ok := i.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(p.IP); ok && own.Unmap() == a {
				return true
			}
		}
	}
	return false
}

// whyNot says in a few words why a connection was not made.
func whyNot(err error) (why string, rule int, addr netip.Addr) {
	if r, ok := errors.AsType[*barred](err); ok {
		return r.why, r.rule, r.addr
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		if e.IsNotFound {
			return "the name is not known", -1, netip.Addr{}
		}
		return "the name cannot be resolved", -1, netip.Addr{}
	}
	return "it cannot be reached", -1, netip.Addr{}
}
