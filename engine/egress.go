package engine

import (
	"context"
	"crypto/x509"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/hostaddr"
)

// network opens, counts and records the connections that sandboxes make to the
// outside.
type network struct {
	*gate
	vault   *vault
	limiter *egress.ConnLimiter // for connections of all sandboxes
	notes   egressNotes
}

// EgressOptions limit the destinations that sandboxes may connect to.
type EgressOptions struct {
	// AllowWide lets every caller set rules that allow nearly everything. Otherwise, only operators
	// of the server may set such rules.
	AllowWide bool
	// Networks are non-public networks that every caller may set rules for.
	Networks []netip.Prefix
	// Memory is the maximum server memory for the connections and requests of
	// one sandbox. Default: egress.DefaultMemory.
	Memory int64
	// Resolver resolves host names. Default: the system's.
	Resolver egress.Resolver
	// Roots are the certificate authorities that the proxy trusts for servers
	// whose requests it inspects. Default: the system's.
	Roots *x509.CertPool
	// Dial opens connections to addresses. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// egressSession is a sandbox's connection to the network. A sandbox without rules has neither a
// session nor network access.
type egressSession struct {
	// changing is held while a session is opened or its rules are changed, including the request to
	// the sandbox's agent. Only calls for this sandbox may wait for the lock.
	changing sync.Mutex
	ca       *egress.CA

	secretErrors, losses rate.Sometimes // limit the log lines

	mu             sync.Mutex // guards the fields below; never held during a request to an agent
	session        *egress.Session
	rec            *brig.Record // of the sandbox of the session
	closed         bool
	dropping       bool        // the session is being closed for a change of rules
	rules          brig.Egress // the configured rules
	countedBytes   int64       // bytes of the session that the tenant's usage already includes
	quotaExhausted bool        // the tenant's quota is used up: the session denies all traffic
}

// usage returns how many bytes the sandbox has sent and received.
func (w *egressSession) usage() (sent, received int64) {
	if w == nil {
		return 0, 0
	}
	session := w.current()
	if session == nil {
		return 0, 0
	}
	return session.Usage()
}

// current returns the open session, or nil if there is none.
func (w *egressSession) current() *egress.Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session
}

// close closes the session, and prevents another one from being opened.
func (w *egressSession) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.closed = true
	session := w.session
	w.mu.Unlock()
	if session != nil {
		session.Close() // waits until its connections have ended
	}
}

// setRules replaces the rules of the session, unless the tenant's quota is used
// up.
func (w *egressSession) setRules(rules brig.Egress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rules = rules; w.session != nil && !w.quotaExhausted {
		w.session.Update(rules)
	}
}

// drop closes the session, if there is one; a new session may be opened afterwards. It calls count
// after the close, because the close ends pending writes, whose bytes must be counted.
func (w *egressSession) drop(count func()) {
	w.mu.Lock()
	session := w.session
	w.dropping = true
	w.mu.Unlock()
	if session != nil {
		session.Close()
	}
	count()
	w.mu.Lock()
	w.session, w.dropping = nil, false
	w.mu.Unlock()
}

func (nw *network) egressOf(id brig.ID) (w *egressSession) {
	nw.sandboxes.update(id, func(s *sandbox) {
		if s.egress == nil {
			s.egress = &egressSession{
				ca: egress.NewCA(nw.seedOf(id)), secretErrors: rate.Sometimes{Interval: logInterval}, losses: rate.Sometimes{Interval: logInterval},
			}
		}
		w = s.egress
	})
	return w
}

// seedOf returns the seed of a sandbox's certificate authority. Servers with the same Options.Seed
// derive the same authority.
func (nw *network) seedOf(id brig.ID) []byte {
	if len(nw.Seed) == 0 {
		return nil
	}
	return nw.deriveKey("authority " + string(id))
}

// checkEgress rejects invalid rules, and rules that only an operator may set.
// It records in the rules whether an operator set them.
func (nw *network) checkEgress(a brig.Actor, rules *brig.Egress) error {
	if err := rules.Check(); err != nil {
		return err
	}
	if rules.Operator = a.Role >= brig.Operator; rules.Operator {
		return nil
	}
	if !nw.Options.Egress.AllowWide {
		if err := egress.CheckBroadRules(rules); err != nil {
			return err
		}
	}
	if err := egress.CheckPrivateNetworks(rules, nw.Options.Egress.Networks); err != nil {
		return err
	}
	return egress.CheckOwnAddress(rules, hostaddr.IsHost, nw.Options.Egress.Networks)
}

// openEgress opens the network session of a sandbox if the sandbox has rules.
func (nw *network) openEgress(ctx context.Context, rec *brig.Record, in brig.Instance) error {
	if len(rec.Spec.Egress.Rules) == 0 {
		return nil
	}
	w := nw.egressOf(rec.ID)
	w.changing.Lock()
	defer w.changing.Unlock()
	return nw.openEgressLocked(ctx, w, rec, in)
}

// uplinkTimeout is how long an agent may take to connect its sandbox. An agent may be hostile and
// never respond.
const uplinkTimeout = 30 * time.Second

// openEgressLocked is like openEgress, for a caller that holds w.changing.
func (nw *network) openEgressLocked(ctx context.Context, w *egressSession, rec *brig.Record, in brig.Instance) error {
	w.mu.Lock()
	done := w.closed || w.session != nil
	w.mu.Unlock()
	if done {
		return nil
	}
	authority, err := w.ca.Certificate()
	if err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(ctx, uplinkTimeout)
	link, err := in.Uplink(opening, authority)
	cancel()
	if err != nil {
		return err
	}
	o := nw.Options.Egress
	rules, exhausted := rec.Spec.Egress, brig.KindOf(nw.CountEgress(rec.ID, 0)) == brig.RateLimited
	if exhausted { // a new session must not let traffic through until the next count
		rules = brig.Egress{}
	}
	session, err := egress.Start(ctx, link, egress.Options{
		Rules: rules, Open: o.Networks, Memory: o.Memory, CA: w.ca, Resolver: o.Resolver, Roots: o.Roots, Dial: o.Dial,
		ConnLimiter: nw.limiter, Secrets: func() []egress.Secret { return nw.brokeredSecrets(rec, w) },
		Report: func(ev egress.Event) { nw.noteEgress(rec, ev) },
	})
	if err != nil {
		_ = link.Close() // the link is useless without a session
		return err
	}
	w.mu.Lock()
	closed := w.closed // it may have been closed during the request
	if !closed {
		w.session, w.rec = session, rec
		w.rules, w.countedBytes, w.quotaExhausted = rec.Spec.Egress, 0, exhausted
	}
	w.mu.Unlock()
	if closed {
		session.Close()
		return nil
	}
	nw.background.Go(func() { nw.watchEgress(rec, in, w, session) })
	return nil
}

// logInterval is the minimum interval between log lines that a sandbox can cause.
const logInterval = time.Minute

// brokeredSecrets returns the secrets that the proxy inserts for a sandbox.
func (nw *network) brokeredSecrets(rec *brig.Record, w *egressSession) []egress.Secret {
	return nw.vault.brokeredSecrets(rec, func(name string, err error) {
		w.secretErrors.Do(func() {
			nw.Log.Warn("failed to read a secret of a sandbox; further errors within a minute are not logged", "sandbox", rec.ID, "secret", name, "err", err)
		})
	})
}

// watchEgress closes a session when its instance ends, or reopens it if the
// session was lost.
func (nw *network) watchEgress(rec *brig.Record, in brig.Instance, w *egressSession, session *egress.Session) {
	select {
	case <-in.Done():
	case <-nw.ctx.Done():
	case <-session.Done():
	}
	session.Close() // before the last count, see endEgress
	nw.countEgress(rec.ID, w)
	nw.countSuppressed(rec, w, session)
	nw.endNotes(rec.ID)
	w.mu.Lock()
	lost := w.session == session && !w.closed && !w.dropping
	if lost {
		w.session = nil
	}
	w.mu.Unlock()
	if lost && !hasEnded(in) && nw.ctx.Err() == nil {
		w.losses.Do(func() { nw.Log.Warn("lost the egress session of a sandbox", "sandbox", rec.ID) })
		nw.reopenEgressAsync(rec, in)
	}
}

// egressReopenDelay is the delay before a lost session is reopened.
const egressReopenDelay = time.Second

// reopenEgressAsync retries to open a session until it is open or no longer needed.
func (nw *network) reopenEgressAsync(rec *brig.Record, in brig.Instance) {
	nw.background.Go(func() {
		for {
			select {
			case <-in.Done():
				return
			case <-nw.ctx.Done():
				return
			case <-time.After(egressReopenDelay):
			}
			ctx, cancel := context.WithTimeout(nw.ctx, cleanupTimeout)
			err := nw.reopenEgress(ctx, rec, in)
			cancel()
			if err == nil {
				return
			}
		}
	})
}

// reopenEgress opens a session with the currently recorded rules. It reads the rules while holding
// w.changing, so that no other goroutine changes them.
func (nw *network) reopenEgress(ctx context.Context, rec *brig.Record, in brig.Instance) error {
	w := nw.egressOf(rec.ID)
	w.changing.Lock()
	defer w.changing.Unlock()
	now, err := nw.Store.Get(ctx, rec.Tenant, string(rec.ID))
	switch {
	case brig.KindOf(err) == brig.NotFound:
		return nil
	case err != nil:
		return err
	case now.State != brig.Running || len(now.Spec.Egress.Rules) == 0:
		return nil
	}
	return nw.openEgressLocked(ctx, w, now, in)
}

// withCA returns a sandbox's environment. If the proxy inspects requests, it contains variables for
// programs with their own list of certificate authorities, which make them trust the sandbox's
// authority.
func withCA(spec brig.Spec) map[string]string {
	inspected := len(spec.Egress.Rules) > 0 && len(spec.Secrets) > 0 // requests may carry secrets
	for i := range spec.Egress.Rules {
		inspected = inspected || spec.Egress.Rules[i].IsHTTP()
	}
	if !inspected {
		return spec.Env
	}
	env := map[string]string{"NODE_EXTRA_CA_CERTS": wire.AuthorityFile}
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO"} {
		env[name] = wire.BundleFile
	}
	maps.Copy(env, spec.Env)
	return env
}
