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
	"github.com/brig-run/brig/internal/hostaddr"
)

// Options describe the sandbox and its environment to a session.
type Options struct {
	Rules brig.Egress
	// Secrets returns the current secrets that requests may carry.
	Secrets func() []Secret
	// CA issues the certificates for inspected TLS connections. If CA is nil,
	// connections that need inspection are refused.
	CA *CA
	// Report receives the sandbox's accesses. It is called from many goroutines
	// and must not block.
	Report func(Event)

	// Memory limits the server memory that the sandbox's connections and requests use. The default
	// is DefaultMemory.
	Memory int64

	// ConnLimiter is shared with the sessions of other sandboxes. The default
	// is a separate limiter, for the maximum number of connections of a
	// sandbox.
	ConnLimiter *ConnLimiter

	// Resolver looks up addresses. The default is net.DefaultResolver.
	Resolver Resolver
	// Roots are the CAs trusted for upstream servers. The default is the system's roots.
	Roots *x509.CertPool
	// Open are the networks that the operator opened to the rules of all
	// tenants.
	Open []netip.Prefix
	// CheckOwnAddress reports whether an address currently belongs to this host. The default is
	// hostaddr.Has.
	CheckOwnAddress func(netip.Addr) bool
	// Dial connects to an address. The default is a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Resolver looks up a name's addresses. net.Resolver implements it.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Session carries the network traffic of one sandbox.
type Session struct {
	Options
	link  brig.Uplink
	names *names
	stack *stack.Stack
	end   *endpoint

	policy     atomic.Pointer[policy]
	events     *rate.Limiter
	suppressed atomic.Int64 // events that were not reported because there were too many
	usage      usage
	valuesSent sentValues
	budget     *budget
	// handshakeSlots and lookupSlots have a slot for each concurrent handshake
	// and each concurrent name lookup.
	handshakeSlots, lookupSlots chan struct{}
	lingerTime                  time.Duration // lingerTimeout, except in tests

	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	closing sync.Once

	carrying sync.WaitGroup // flows that may carry more bytes

	mu    sync.Mutex // guards the fields below
	ended bool       // no more flows are opened
	flows map[*flow]struct{}
	more  int // outside connections of inspected flows beyond the first of each
}

// policy is the current rules and their limiters.
type policy struct {
	brig.Egress
	up, down *rate.Limiter // nil: no limit
}

// Limits of reported events: the burst size and the rate per second. Further
// events are only counted.
const (
	eventBurst = 200
	eventRate  = 20
)

// Start starts a session for a sandbox. The session owns the link, and ends
// when the link ends.
func Start(ctx context.Context, link brig.Uplink, o Options) (*Session, error) {
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if o.CheckOwnAddress == nil {
		o.CheckOwnAddress = hostaddr.IsHost
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	if o.ConnLimiter == nil {
		o.ConnLimiter = NewConnLimiter(2 * maxFlows)
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Report == nil {
		o.Report = func(Event) {}
	}
	s := &Session{
		Options: o, link: link, names: newNames(), end: &endpoint{link: link},
		budget: newBudget(o.Memory), handshakeSlots: make(chan struct{}, maxConcurrentHandshakes), lookupSlots: make(chan struct{}, maxConcurrentLookups),
		events: rate.NewLimiter(eventRate, eventBurst), flows: map[*flow]struct{}{}, lingerTime: lingerTimeout,
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

// receive processes the sandbox's packets until the link ends.
func (s *Session) receive() {
	defer s.cancel()
	p := make([]byte, brig.UplinkMTU)
	for {
		n, err := s.link.Receive(p)
		if err != nil {
			return
		}
		if s.admit(p[:n]) {
			s.end.deliver(p[:n])
		}
	}
}

// Update replaces the rules. Before it returns, it closes the connections that
// the new rules do not allow, or allow only with inspection.
func (s *Session) Update(rules brig.Egress) {
	p := &policy{Egress: rules}
	if rules.Bandwidth > 0 {
		p.up, p.down = newLimiter(rules.Bandwidth), newLimiter(rules.Bandwidth)
	}
	s.policy.Store(p)
	secrets := sync.OnceValue(s.currentSecrets)
	s.mu.Lock()
	var out []*flow
	for f := range s.flows {
		if !f.isClosed() && !s.isStillAllowed(f, secrets) {
			out = append(out, f)
		}
	}
	s.mu.Unlock()
	for _, f := range out {
		f.close()
		s.report(Event{Kind: Connect, Host: f.host, Addr: addrText(f.getAddr()), Port: f.port, Rule: -1, Why: "the rules have changed"})
	}
}

func (s *Session) rules() *brig.Egress { return &s.policy.Load().Egress }

// Usage returns how many bytes the sandbox has sent and received.
func (s *Session) Usage() (sent, received int64) {
	return s.usage.sent.Load(), s.usage.received.Load()
}

// TakeSuppressed returns how many events were not reported since the last reported
// event, and resets the counter.
func (s *Session) TakeSuppressed() int64 { return s.suppressed.Swap(0) }

// Done returns a channel that is closed when the session or its link has ended.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Close ends the session and all its connections, and waits until they carry no
// more bytes. It may be called more than once.
func (s *Session) Close() { s.closing.Do(s.shutDown) }

func (s *Session) shutDown() {
	s.cancel()
	_ = s.link.Close() // the stack may be blocked in it
	s.mu.Lock()
	s.ended = true
	for f := range s.flows {
		f.close()
	}
	s.mu.Unlock()
	s.stack.Close()
	s.work.Wait()
	s.awaitFlows()
	s.stack.Destroy()
}

// closeTimeout bounds the wait for flows. A flow that takes longer is waiting for a handshake with
// the sandbox and has not carried any data.
const closeTimeout = 2 * time.Second

// awaitFlows waits until the flows of an ended session have counted their last bytes.
func (s *Session) awaitFlows() {
	counted := make(chan struct{})
	go func() {
		s.carrying.Wait()
		close(counted)
	}()
	late := time.NewTimer(closeTimeout)
	defer late.Stop()
	select {
	case <-counted:
	case <-late.C:
	}
}

// report reports an event, unless there are too many. Allowed accesses are
// always reported.
func (s *Session) report(e Event) {
	let := e.Allowed && e.Kind != Lookup
	if !let && !s.events.Allow() {
		s.suppressed.Add(1)
		return
	}
	e.At, e.Suppressed = time.Now().UTC(), s.suppressed.Swap(0)
	s.Report(e)
}

func (s *Session) drop(reason string, to netip.Addr, port int) {
	s.usage.dropped.Add(1)
	s.report(Event{Kind: Drop, Addr: addrText(to), Port: port, Rule: -1, Why: reason})
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
