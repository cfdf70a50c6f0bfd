package egress

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"github.com/brig-run/brig"
)

// maxFlows bounds the connections of one sandbox.
const maxFlows = 512

// flow is one connection of the sandbox, with what it needs outside.
type flow struct {
	host   string // empty where the sandbox named an address
	port   int
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex // guards the fields below
	addr   netip.Addr // of the other side, once it is known
	looked bool       // requests are looked at, one by one
	conns  []net.Conn
	closed bool
}

// open begins a flow, or says of whom there are too many. From here on a change
// of the rules finds it.
func (s *Session) open(host string, addr netip.Addr, port int) (_ *flow, why string) {
	f := &flow{host: host, addr: addr, port: port}
	f.ctx, f.cancel = context.WithCancel(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.flows) >= maxFlows:
		why = "too many connections"
	case !s.Room.take(len(s.flows)):
		why = "too many connections of all sandboxes together"
	default:
		s.flows[f] = struct{}{}
		return f, ""
	}
	f.cancel()
	return nil, why
}

// finish ends a flow.
func (s *Session) finish(f *flow) {
	f.close()
	s.mu.Lock()
	delete(s.flows, f)
	s.mu.Unlock()
	s.Room.leave()
}

// buffer is how much is kept each way of a connection that begins now.
func (s *Session) buffer() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Room.buffer(len(s.flows))
}

// add has a connection closed with the flow, which may have been already.
func (f *flow) add(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, c)
	if f.closed {
		_ = c.Close()
	}
}

// close closes everything that the flow has.
func (f *flow) close() {
	f.cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, c := range f.conns {
		_ = c.Close()
	}
}

func (f *flow) setLooked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked = true
}

func (f *flow) isLooked() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looked
}

func (f *flow) setAddr(a netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addr = a
}

func (f *flow) getAddr() netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.addr
}

// verdict says what the rules make of a flow at this moment.
func (s *Session) verdict(f *flow) (brig.Verdict, int) {
	rules := s.rules()
	if f.host == "" {
		a := f.getAddr()
		v, rule := rules.Numbered(a, f.port)
		if v == brig.Allowed && s.Own(a) && !namesIt(rules, rule, a) {
			return brig.Denied, -1
		}
		return v, rule
	}
	v, rule := rules.Named(f.host, f.port)
	if v == brig.Allowed && s.carries(f.host) {
		return brig.Inspect, rule
	}
	return v, rule
}

// carries reports whether requests to a host may carry a secret.
func (s *Session) carries(host string) bool {
	if len(s.given.to(host)) > 0 {
		return true
	}
	if s.Secrets == nil {
		return false
	}
	for _, secret := range s.Secrets() {
		for _, h := range secret.Hosts {
			if brig.MatchHost(h, host) {
				return true
			}
		}
	}
	return false
}

// stillAllowed reports whether a flow may go on under rules that have changed.
// One that is looked at may not: what is going on in it was judged by others.
func (s *Session) stillAllowed(f *flow) bool {
	v, _ := s.verdict(f)
	if v != brig.Allowed || f.isLooked() {
		return false
	}
	a := f.getAddr()
	return f.host == "" || !a.IsValid() || s.judge(a, f.port) == nil
}
