package egress

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/brig-run/brig"
)

// connect checks a connection to an address, and relays it. It calls accept,
// which accepts the sandbox's connection, after the other side is connected. Until then the
// sandbox waits, so an unreachable host is refused as on any network.
func (s *Session) connect(to netip.AddrPort, accept func(buffer int64) (net.Conn, error)) {
	if to.Addr() == brig.UplinkGateway && to.Port() == dnsPort {
		s.serveDNS(accept)
		return
	}
	host, named := s.names.lookupName(to.Addr())
	if !named && brig.UplinkNetwork.Contains(to.Addr()) {
		s.report(Event{Kind: Connect, Addr: addrText(to.Addr()), Port: int(to.Port()), Rule: -1, Why: "no name stands for the address"})
		return
	}
	addr := to.Addr()
	if named {
		addr = netip.Addr{}
	}
	f, reason := s.openFlow(host, addr, int(to.Port()))
	if f == nil {
		s.report(Event{Kind: Connect, Host: host, Addr: addrText(addr), Port: int(to.Port()), Rule: -1, Why: reason})
		return
	}
	defer s.finish(f)
	judged := s.policy.Load()
	verdict, rule := s.judgeFlow(f, s.currentSecrets)
	event := Event{Kind: Connect, Host: host, Addr: addrText(addr), Port: f.port, Rule: rule}
	switch {
	case verdict == brig.Denied:
		event.Why = "a rule denies it"
		if rule < 0 {
			event.Why = "no rule allows it"
		}
		s.report(event)
	case verdict == brig.Inspect && s.CA == nil:
		event.Why = "requests cannot be looked at here"
		s.report(event)
	case verdict == brig.Inspect:
		s.inspect(f, event, accept)
	default:
		s.carry(f, judged, event, accept)
	}
}

// carry connects to the other side, and copies data between the two sides.
func (s *Session) carry(f *flow, judged *policy, event Event, accept func(buffer int64) (net.Conn, error)) {
	outside, addr, err := s.dialOutside(f)
	if err != nil {
		var rule int
		var failedAddr netip.Addr
		event.Why, rule, failedAddr = describeDialError(err)
		if failedAddr.IsValid() {
			event.Addr, event.Rule = addrText(failedAddr), rule
		}
		s.report(event)
		return
	}
	defer outside.Close()
	f.setAddr(addr)
	f.add(outside)
	if s.policy.Load() != judged && !s.isStillAllowed(f, s.currentSecrets) {
		return // the rules have changed during the dial
	}
	event.Addr, event.Allowed = addrText(addr), true
	s.report(event)
	inside, err := accept(f.buffer)
	if err != nil {
		return
	}
	defer inside.Close()
	f.add(inside)
	if reason := s.tunnel(f, sandboxConn{inside, s}, outside); reason != "" {
		event.Allowed, event.Why = false, reason
		s.report(event)
	}
}

func (s *Session) dialOutside(f *flow) (net.Conn, netip.Addr, error) {
	if f.host != "" {
		return s.dial(f.ctx, f.host, f.port)
	}
	a := f.getAddr()
	c, err := s.dialAddr(f.ctx, a, f.port)
	if err == nil && !s.isStillAllowed(f, s.currentSecrets) { // this host may have been assigned the address since
		_ = c.Close()
		return nil, a, &blockedError{"no rule allows it", -1, a}
	}
	return c, a, err
}

// serveDNS responds to DNS queries over TCP.
func (s *Session) serveDNS(accept func(buffer int64) (net.Conn, error)) {
	f, _ := s.openFlow("", brig.UplinkGateway, dnsPort)
	if f == nil {
		return
	}
	defer s.finish(f)
	c, err := accept(f.buffer)
	if err != nil {
		return
	}
	defer c.Close()
	f.add(c)
	for {
		_ = c.SetDeadline(time.Now().Add(sniffTimeout))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		length := binary.BigEndian.Uint16(size[:])
		if length > maxDNSQuery {
			return
		}
		question := make([]byte, length)
		if _, err := io.ReadFull(c, question); err != nil {
			return
		}
		out := s.answerDNS(question)
		if out == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
			return
		}
	}
}
