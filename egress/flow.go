package egress

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"github.com/brig-run/brig"
)

// maxFlows is the maximum number of connections of one sandbox.
const maxFlows = 512

// flow is one connection of the sandbox, with its connection to the host.
type flow struct {
	host   string // empty if the sandbox connected to an address
	port   int
	buffer int64 // bytes buffered in each direction on the sandbox's side
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex // guards the fields below
	addr      netip.Addr // of the other side, once it is known
	inspected bool       // requests are inspected one by one
	conns     []net.Conn
	kept      map[*keptConn]struct{} // connections to the host of an inspected flow
	closed    bool
}

// keptConn is a connection to the host of an inspected flow, which may carry
// further requests.
type keptConn struct {
	net.Conn
	f    *flow
	addr netip.Addr
}

// keep wraps a connection to the host, which belongs to the flow until it is closed.
func (f *flow) keep(c net.Conn, addr netip.Addr) *keptConn {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept == nil {
		f.kept = map[*keptConn]struct{}{}
	}
	k := &keptConn{c, f, addr}
	f.kept[k] = struct{}{}
	return k
}

// Close implements net.Conn.
func (k *keptConn) Close() error {
	k.f.mu.Lock()
	delete(k.f.kept, k)
	k.f.mu.Unlock()
	return k.Conn.Close()
}

// CloseWrite closes the write side.
func (k *keptConn) CloseWrite() error { return closeWrite(k.Conn) }

// recheck checks the address of each kept connection of a flow again, because the next request may
// use any of them. It closes the connections that may no longer be used.
func (s *Session) recheck(f *flow) error {
	f.mu.Lock()
	addrs := map[netip.Addr][]*keptConn{}
	for k := range f.kept {
		addrs[k.addr] = append(addrs[k.addr], k)
	}
	f.mu.Unlock()
	var first error
	for a, conns := range addrs {
		r := s.judgeAddress(a, f.port)
		if r == nil {
			continue
		}
		for _, k := range conns {
			_ = k.Close()
		}
		s.report(Event{Kind: Connect, Host: f.host, Addr: addrText(a), Port: f.port, Rule: r.rule, Why: r.reason})
		first = r
	}
	return first
}

// openFlow creates a flow, or returns the reason if a limit was reached. Later
// changes of the rules apply to the flow.
func (s *Session) openFlow(host string, addr netip.Addr, port int) (_ *flow, reason string) {
	f := &flow{host: host, addr: addr, port: port}
	f.ctx, f.cancel = context.WithCancel(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		f.cancel()
		return nil, "the session has ended"
	}
	if reason = s.reserve(); reason == "" && !s.charge(f) {
		s.ConnLimiter.release()
		reason = reasonNoMemory
	}
	if reason != "" {
		f.cancel()
		return nil, reason
	}
	s.flows[f] = struct{}{}
	s.carrying.Add(1)
	return f, ""
}

// reserve reserves one more connection, or returns the reason if none is
// available. The caller holds s.mu.
func (s *Session) reserve() (reason string) {
	switch conns := len(s.flows) + s.more; {
	case conns >= maxFlows:
		return "too many connections"
	case !s.ConnLimiter.acquire(conns):
		return "too many connections of all sandboxes together"
	}
	return ""
}

// reserveConnection reserves one more outside connection for a flow.
func (s *Session) reserveConnection() (leave func(), reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reason = s.reserve(); reason != "" {
		return nil, reason
	}
	s.more++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.more--
		s.ConnLimiter.release()
	}, ""
}

// finish ends a flow. The flow is counted and charged until the network stack
// has released its data.
func (s *Session) finish(f *flow) {
	f.close()
	s.carrying.Done()
	s.linger(f)
	s.mu.Lock()
	delete(s.flows, f)
	s.mu.Unlock()
	s.budget.release(flowCost(f.buffer))
	s.ConnLimiter.release()
}

// charge chooses the buffer size of a connection, and charges it. The first
// connections get large buffers, and further ones get smaller buffers. The
// caller holds s.mu.
func (s *Session) charge(f *flow) bool {
	for _, size := range s.ConnLimiter.buffers() {
		if s.budget.reserve(flowCost(size.each), s.budget.limit-s.budget.limit*size.within/8) {
			f.buffer = size.each
			return true
		}
	}
	return false
}

// flowCost returns the memory of a connection: the buffers of the network stack and
// the bytes carried at a time, in both directions.
func flowCost(buffer int64) int64 { return 2 * (buffer + copyBufferSize(buffer)) }

// copyBufferSize returns the number of bytes of a connection that are copied at
// a time.
func copyBufferSize(buffer int64) int64 { return min(max(buffer/2, 4<<10), 32<<10) }

// add arranges that c is closed with the flow, or closes it if the flow is
// closed already.
func (f *flow) add(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, c)
	if f.closed {
		_ = c.Close()
	}
}

// close closes all connections of the flow.
func (f *flow) close() {
	f.cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, c := range f.conns {
		_ = c.Close()
	}
}

func (f *flow) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

func (f *flow) setInspected() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inspected = true
}

func (f *flow) isInspected() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inspected
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

// currentSecrets returns the sandbox's secrets. They are read from the store.
func (s *Session) currentSecrets() []Secret {
	if s.Secrets == nil {
		return nil
	}
	return s.Secrets()
}

// judgeFlow returns the current decision of the rules about a flow. secrets
// returns the sandbox's secrets.
func (s *Session) judgeFlow(f *flow, secrets func() []Secret) (brig.Verdict, int) {
	rules := s.rules()
	if f.host == "" {
		a := f.getAddr()
		v, rule := rules.Numbered(a, f.port)
		if v == brig.Allowed && s.describeHidden(rules, rule, a, f.port) != "" {
			return brig.Denied, -1
		}
		return v, rule
	}
	v, rule := rules.Named(f.host, f.port)
	if v == brig.Allowed && s.canCarrySecrets(f.host, secrets) {
		return brig.Inspect, rule
	}
	return v, rule
}

// canCarrySecrets reports whether requests to a host may carry a secret.
func (s *Session) canCarrySecrets(host string, secrets func() []Secret) bool {
	if len(s.valuesSent.receivedBy(host)) > 0 {
		return true
	}
	for _, secret := range secrets() {
		for _, h := range secret.Hosts {
			if brig.MatchHost(h, host) {
				return true
			}
		}
	}
	return false
}

// isStillAllowed reports whether a flow may continue after the rules have changed. An inspected flow
// may not continue, because its current requests were checked with the old rules.
func (s *Session) isStillAllowed(f *flow, secrets func() []Secret) bool {
	v, _ := s.judgeFlow(f, secrets)
	if v != brig.Allowed || f.isInspected() {
		return false
	}
	a := f.getAddr()
	return f.host == "" || !a.IsValid() || s.judgeAddress(a, f.port) == nil
}
