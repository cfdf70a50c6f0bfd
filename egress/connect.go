package egress

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/brig-run/brig"
)

// connect decides about a connection to an address, and carries it. The
// sandbox's side is made by answer, when the other side is there: until then
// it waits, and what cannot be reached is refused as it would be anywhere.
func (s *Session) connect(to netip.AddrPort, answer func() (net.Conn, error)) {
	if to.Addr() == brig.UplinkGateway && to.Port() == dnsPort {
		s.serveNames(answer)
		return
	}
	host, named := s.names.name(to.Addr())
	if !named && brig.UplinkNetwork.Contains(to.Addr()) {
		s.report(Event{What: Connect, Addr: addrText(to.Addr()), Port: int(to.Port()), Rule: -1, Why: "no name stands for the address"})
		return
	}
	addr := to.Addr()
	if named {
		addr = netip.Addr{}
	}
	f, why := s.open(host, addr, int(to.Port()))
	if f == nil {
		s.report(Event{What: Connect, Host: host, Addr: addrText(addr), Port: int(to.Port()), Rule: -1, Why: why})
		return
	}
	defer s.finish(f)
	judged := s.policy.Load()
	verdict, rule := s.verdict(f)
	event := Event{What: Connect, Host: host, Addr: addrText(addr), Port: f.port, Rule: rule}
	switch {
	case verdict == brig.Denied:
		event.Why = "a rule denies it"
		if rule < 0 {
			event.Why = "no rule allows it"
		}
		s.report(event)
	case verdict == brig.Inspect && s.Authority == nil:
		event.Why = "requests cannot be looked at here"
		s.report(event)
	case verdict == brig.Inspect:
		s.look(f, event, answer)
	default:
		s.carry(f, judged, event, answer)
	}
}

// carry makes a connection to the other side, and a tunnel of the two.
func (s *Session) carry(f *flow, judged *policy, event Event, answer func() (net.Conn, error)) {
	there, addr, err := s.outside(f)
	if err != nil {
		var rule int
		var at netip.Addr
		event.Why, rule, at = whyNot(err)
		if at.IsValid() {
			event.Addr, event.Rule = addrText(at), rule
		}
		s.report(event)
		return
	}
	defer there.Close()
	f.setAddr(addr)
	f.add(there)
	if s.policy.Load() != judged && !s.stillAllowed(f) {
		return // the rules have changed meanwhile
	}
	event.Addr, event.Allowed = addrText(addr), true
	s.report(event)
	here, err := answer()
	if err != nil {
		return
	}
	defer here.Close()
	f.add(here)
	if why := tunnel(metered{here, s}, there, f.host); why != "" {
		event.Allowed, event.Why = false, why
		s.report(event)
	}
}

func (s *Session) outside(f *flow) (net.Conn, netip.Addr, error) {
	if f.host != "" {
		return s.dial(f.ctx, f.host, f.port)
	}
	a := f.getAddr()
	c, err := s.reach(f.ctx, a, f.port)
	return c, a, err
}

// serveNames answers questions for names over TCP.
func (s *Session) serveNames(answer func() (net.Conn, error)) {
	f, _ := s.open("", brig.UplinkGateway, dnsPort)
	if f == nil {
		return
	}
	defer s.finish(f)
	c, err := answer()
	if err != nil {
		return
	}
	defer c.Close()
	f.add(c)
	for {
		_ = c.SetDeadline(time.Now().Add(sniffTime))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, question); err != nil {
			return
		}
		out := s.answer(question)
		if out == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
			return
		}
	}
}
