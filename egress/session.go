package egress

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/brig-run/brig"
)

// Options are what a session is told of the sandbox and of the world.
type Options struct {
	Rules brig.Egress
	// Secrets returns those that requests may carry, as they are now.
	Secrets func() []Secret
	// Authority ends TLS where requests are looked at; nil: none are, and what
	// needs it is refused.
	Authority *Authority
	// Report is told what the sandbox asks for. It is called from many
	// goroutines and must not wait.
	Report func(Event)

	// Room is shared with the sessions of other sandboxes. Default one of its
	// own, for as many connections as a sandbox may have.
	Room *Room

	// Resolver finds addresses. Default the system's.
	Resolver Resolver
	// Roots are who may vouch for servers. Default the system's.
	Roots *x509.CertPool
	// Own reports whether an address is this machine's. Default those of its
	// interfaces.
	Own func(netip.Addr) bool
	// Dial connects to an address. Default a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Resolver finds a name's addresses, as net.Resolver does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Session is one sandbox's way out.
type Session struct {
	Options
	link  brig.Uplink
	names *names
	stack *stack.Stack
	end   *endpoint

	policy atomic.Pointer[policy]
	events *rate.Limiter
	lost   atomic.Int64 // events that were too many to report
	usage  usage
	given  given

	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	closing sync.Once

	mu    sync.Mutex // guards the field below
	flows map[*flow]struct{}
}

// policy is what rules are right now.
type policy struct {
	brig.Egress
	up, down *rate.Limiter // nil is no bound
}

// How many events are reported: what a sandbox does in a burst, and each
// second. What is beyond is counted.
const (
	eventBurst = 200
	eventRate  = 20
)

// Start gives a sandbox its way out. The session has the link and ends with it.
func Start(ctx context.Context, link brig.Uplink, o Options) (*Session, error) {
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if o.Own == nil {
		o.Own = isOwn
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	if o.Room == nil {
		o.Room = NewRoom(2 * maxFlows)
	}
	if o.Report == nil {
		o.Report = func(Event) {}
	}
	s := &Session{
		Options: o, link: link, names: newNames(), end: &endpoint{link: link},
		events: rate.NewLimiter(eventRate, eventBurst), flows: map[*flow]struct{}{},
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.Update(o.Rules)
	var err error
	if s.stack, err = newStack(s.end, s.accept); err != nil {
		s.cancel()
		return nil, err
	}
	s.work.Go(s.receive)
	return s, nil
}

// receive takes what the sandbox sends until the link ends.
func (s *Session) receive() {
	defer s.cancel()
	p := make([]byte, brig.UplinkMTU)
	for {
		n, err := s.link.Receive(p)
		if err != nil {
			return
		}
		if s.admit(p[:n]) {
			s.end.inject(p[:n])
		}
	}
}

// Update changes the rules. Connections that they do not allow any more, or
// not without looking at them, are closed before it returns.
func (s *Session) Update(rules brig.Egress) {
	p := &policy{Egress: rules}
	if rules.Bandwidth > 0 {
		p.up, p.down = newLimiter(rules.Bandwidth), newLimiter(rules.Bandwidth)
	}
	s.policy.Store(p)
	s.mu.Lock()
	var out []*flow
	for f := range s.flows {
		if !s.stillAllowed(f) {
			out = append(out, f)
		}
	}
	s.mu.Unlock()
	for _, f := range out {
		f.close()
		s.report(Event{What: Connect, Host: f.host, Addr: addrText(f.getAddr()), Port: f.port, Rule: -1, Why: "the rules have changed"})
	}
}

func (s *Session) rules() *brig.Egress { return &s.policy.Load().Egress }

// Usage is how many bytes the sandbox has sent and received.
func (s *Session) Usage() (sent, received int64) {
	return s.usage.sent.Load(), s.usage.received.Load()
}

// Untold is how many events were too many to be told since the last that was.
// It forgets them.
func (s *Session) Untold() int64 { return s.lost.Swap(0) }

// Done is closed when the session has ended, or its link has.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Close ends the session and everything that goes through it. It may be called
// more than once, and returns when all has ended.
func (s *Session) Close() { s.closing.Do(s.shut) }

func (s *Session) shut() {
	s.cancel()
	_ = s.link.Close() // the stack may be waiting in it
	s.mu.Lock()
	for f := range s.flows {
		f.close()
	}
	s.mu.Unlock()
	s.stack.Close()
	s.work.Wait()
	s.stack.Destroy()
}

// report tells of an event, unless there are too many. What was let out is
// always told.
func (s *Session) report(e Event) {
	let := e.Allowed && e.What != Lookup
	if !let && !s.events.Allow() {
		s.lost.Add(1)
		return
	}
	e.At, e.Missed = time.Now().UTC(), s.lost.Swap(0)
	s.Report(e)
}

func (s *Session) drop(why string, to netip.Addr, port int) {
	s.usage.dropped.Add(1)
	s.report(Event{What: Drop, Addr: addrText(to), Port: port, Rule: -1, Why: why})
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
