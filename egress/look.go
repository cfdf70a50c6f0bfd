package egress

import (
	"context"
	"net"
	"time"

	"github.com/brig-run/brig"
)

// look serves the requests of a connection, each of which is judged.
func (s *Session) look(f *flow, event Event, answer func() (net.Conn, error)) {
	f.setLooked()
	here, err := answer()
	if err != nil {
		return
	}
	f.add(here)
	first := make([]byte, 1)
	_ = here.SetReadDeadline(time.Now().Add(sniffTime))
	n, err := here.Read(first)
	if err != nil {
		event.Why = "it said nothing"
		s.report(event)
		return
	}
	_ = here.SetReadDeadline(time.Time{})
	event.Allowed = true
	s.report(event)
	i := &inspector{
		authority: s.Authority, judge: s.asked, roots: s.Roots, report: s.report, now: time.Now, given: &s.given,
		secrets: func() []Secret {
			if s.Secrets == nil {
				return nil
			}
			return s.Secrets()
		},
		dial: func(ctx context.Context, host string, port int) (net.Conn, error) {
			c, addr, err := s.dial(ctx, host, port)
			if err == nil {
				f.setAddr(addr)
				return c, nil
			}
			// What was told so far is that the connection and the request may be made.
			why, rule, at := whyNot(err)
			s.report(Event{What: Connect, Host: host, Addr: addrText(at), Port: port, Rule: rule, Why: why})
			return nil, err
		},
	}
	i.serve(f.ctx, &replayed{metered{here, s}, first[:n]}, f.host, f.port, first[0] == handshake)
}

// asked judges a request by the rules as they are now.
func (s *Session) asked(host string, port int, q brig.Request) (brig.Verdict, int) {
	return s.rules().Asked(host, port, q)
}

// replayed is a connection of which something has been read before.
type replayed struct {
	metered
	first []byte
}

// Read implements net.Conn.
func (r *replayed) Read(p []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(p, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.metered.Read(p)
}
