package egress

import (
	"context"
	"net"
	"time"

	"github.com/brig-run/brig"
)

// inspect serves the requests of a connection, and checks each of them.
func (s *Session) inspect(f *flow, event Event, accept func(buffer int64) (net.Conn, error)) {
	f.setInspected()
	inside, err := accept(f.buffer)
	if err != nil {
		return
	}
	f.add(inside)
	first := make([]byte, 1)
	_ = inside.SetReadDeadline(time.Now().Add(sniffTimeout))
	n, err := inside.Read(first)
	if err != nil {
		event.Why = "it said nothing"
		s.report(event)
		return
	}
	_ = inside.SetReadDeadline(time.Time{})
	event.Allowed = true
	s.report(event)
	i := &inspector{
		authority: s.CA, judge: s.judgeRequest, roots: s.Roots, report: s.report, now: time.Now, valuesSent: &s.valuesSent,
		budget: s.budget, handshakeSlots: s.handshakeSlots, reserveConn: s.reserveConnection,
		secrets: s.currentSecrets, countGrown: s.countGrowth,
		isRestricted: func(host string, port int) bool {
			v, _ := s.rules().Named(host, port)
			return v == brig.Inspect
		},
		recheck: func() error { return s.recheck(f) },
		dial: func(ctx context.Context, host string, port int) (net.Conn, error) {
			c, addr, err := s.dial(ctx, host, port)
			if err == nil {
				f.setAddr(addr)
				return f.keep(c, addr), nil
			}
			// The events so far report only that the connection and the request
			// are allowed.
			reason, rule, failedAddr := describeDialError(err)
			s.report(Event{Kind: Connect, Host: host, Addr: addrText(failedAddr), Port: port, Rule: rule, Why: reason})
			return nil, err
		},
	}
	i.serve(f.ctx, &replayConn{sandboxConn{inside, s}, first[:n]}, f.host, f.port, first[0] == handshake)
}

// judgeRequest checks a request by the current rules.
func (s *Session) judgeRequest(host string, port int, q brig.Request) (brig.Verdict, int) {
	return s.rules().CheckRequest(host, port, q)
}

// replayConn is a connection whose first bytes have been read before.
type replayConn struct {
	sandboxConn
	first []byte
}

// Read implements net.Conn.
func (r *replayConn) Read(p []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(p, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.sandboxConn.Read(p)
}
