package engine

import (
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
	"github.com/brig-run/brig/guest/wire"
)

// EgressOptions bound where sandboxes may connect to.
type EgressOptions struct {
	// Wide lets everybody have rules that allow nearly everything; otherwise
	// only those may who run the server.
	Wide bool
	// Networks are those that are not of the public internet and that
	// everybody may have rules for.
	Networks []netip.Prefix
	// Resolver finds addresses. Default the system's.
	Resolver egress.Resolver
	// Roots are who may vouch for servers where requests are looked at.
	// Default the system's.
	Roots *x509.CertPool
	// Dial connects to addresses. Default a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// way is a sandbox's way out. One that has no rules has none, and no network.
type way struct {
	mu        sync.Mutex // guards the fields below, and is held while one is opened
	session   *egress.Session
	authority *egress.Authority
	closed    bool
	rules     brig.Egress // as they are wanted
	counted   int64       // bytes of the session that its tenant's usage has
	spent     bool        // the tenant's quota is, and nothing is let through
}

// close ends what there is of a way, for good.
func (w *way) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.session != nil {
		w.session.Close()
	}
}

func (e *Engine) wayOf(id brig.ID) *way {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.ways[id]
	if w == nil {
		w = &way{authority: egress.NewAuthority(e.seedOf(id))}
		e.ways[id] = w
	}
	return w
}

// seedOf is what a sandbox's authority is made of, the same for each server
// with the same seed.
func (e *Engine) seedOf(id brig.ID) []byte {
	if len(e.Seed) == 0 {
		return nil
	}
	return e.derive("authority " + string(id))
}

// checkEgress refuses rules that are wrong, and those that only an operator
// may have.
func (e *Engine) checkEgress(a brig.Actor, rules *brig.Egress) error {
	if err := rules.Check(); err != nil {
		return err
	}
	if a.Role >= brig.Operator {
		return nil
	}
	if !e.Options.Egress.Wide {
		if err := egress.Wide(rules); err != nil {
			return err
		}
	}
	return egress.Private(rules, e.Options.Egress.Networks)
}

// openWay gives a sandbox the way out that its rules say, none for no rules.
func (e *Engine) openWay(ctx context.Context, rec *brig.Record, in brig.Instance) error {
	if len(rec.Spec.Egress.Rules) == 0 {
		return nil
	}
	w := e.wayOf(rec.ID)
	w.mu.Lock()
	defer w.mu.Unlock()
	return e.openLocked(ctx, w, rec, in)
}

// openLocked is openWay for who holds w.mu.
func (e *Engine) openLocked(ctx context.Context, w *way, rec *brig.Record, in brig.Instance) error {
	if w.closed || w.session != nil {
		return nil
	}
	authority, err := w.authority.Certificate()
	if err != nil {
		return err
	}
	link, err := in.Uplink(ctx, authority)
	if err != nil {
		return err
	}
	o := e.Options.Egress
	w.session, err = egress.Start(ctx, link, egress.Options{
		Rules: rec.Spec.Egress, Authority: w.authority, Resolver: o.Resolver, Roots: o.Roots, Dial: o.Dial,
		Room: e.room, Secrets: func() []egress.Secret { return e.brokered(rec) },
		Report: func(ev egress.Event) { e.noteEgress(rec, ev) },
	})
	if err != nil {
		_ = link.Close() // there is no way out with it
		return err
	}
	w.rules, w.counted, w.spent = rec.Spec.Egress, 0, false
	session := w.session
	e.work.Go(func() { e.watchWay(rec, in, w, session) })
	return nil
}

// watchWay closes a way with its machine, or opens it again when it was lost.
func (e *Engine) watchWay(rec *brig.Record, in brig.Instance, w *way, session *egress.Session) {
	select {
	case <-in.Done():
	case <-e.ctx.Done():
	case <-session.Done():
	}
	e.countWay(rec.ID, w)
	session.Close()
	e.endNotes(rec, session.Untold())
	w.mu.Lock()
	lost := w.session == session && !w.closed
	if lost {
		w.session = nil
	}
	w.mu.Unlock()
	if lost && !gone(in) && e.ctx.Err() == nil {
		e.Log.Warn("the way out of a sandbox was lost", "sandbox", rec.ID)
		e.openLater(rec, in)
	}
}

// wayPause is how long a sandbox has no way out after it lost one.
const wayPause = time.Second

// openLater tries again to open a way until it is open or not wanted any more.
func (e *Engine) openLater(rec *brig.Record, in brig.Instance) {
	e.work.Go(func() {
		for {
			select {
			case <-in.Done():
				return
			case <-e.ctx.Done():
				return
			case <-time.After(wayPause):
			}
			ctx, cancel := context.WithTimeout(e.ctx, cleanupTime)
			err := e.openAgain(ctx, rec, in)
			cancel()
			if err == nil {
				return
			}
		}
	})
}

// openAgain is openWay with the rules that are on record by now. They are read
// when nobody can be changing them.
func (e *Engine) openAgain(ctx context.Context, rec *brig.Record, in brig.Instance) error {
	w := e.wayOf(rec.ID)
	w.mu.Lock()
	defer w.mu.Unlock()
	now, err := e.Store.Get(ctx, rec.Tenant, string(rec.ID))
	switch {
	case brig.KindOf(err) == brig.NotFound:
		return nil
	case err != nil:
		return err
	case now.State != brig.Running || len(now.Spec.Egress.Rules) == 0:
		return nil
	}
	return e.openLocked(ctx, w, now, in)
}

// SetEgress implements brig.Service.
func (e *Engine) SetEgress(ctx context.Context, name string, rules brig.Egress) (out *brig.Sandbox, err error) {
	err = e.inside(ctx, brig.OpSetEgress, name, func(v *visit, in brig.Instance) error {
		if err := e.checkEgress(v.actor, &rules); err != nil {
			return err
		}
		at, err := e.memberOf(&v.rec.Sandbox)
		if err != nil {
			return err
		}
		if err := checkRules(e.capabilities(at), &rules); err != nil {
			return err
		}
		w := e.wayOf(v.rec.ID)
		w.mu.Lock()
		defer w.mu.Unlock()
		var had brig.Egress
		rec, err := e.update(ctx, v.rec.Tenant, v.rec.ID, func(r *brig.Record) error {
			had, r.Spec.Egress = r.Spec.Egress, rules
			return nil
		})
		if err != nil {
			return err
		}
		switch {
		case w.session == nil && len(rules.Rules) > 0:
			if err := e.openLocked(ctx, w, rec, in); err != nil {
				return errors.Join(err, e.keepRules(ctx, v.rec, had))
			}
		case w.session != nil && len(rules.Rules) == 0:
			e.countLocked(v.rec.ID, w)
			w.session.Close()
			w.session = nil
		case w.session != nil:
			if w.rules = rules; !w.spent {
				w.session.Update(rules)
			}
		}
		out = &rec.Sandbox
		return nil
	})
	return out, err
}

// keepRules puts the rules back on record that a sandbox had, where it was not
// given others: what is refused changes nothing.
func (e *Engine) keepRules(ctx context.Context, rec *brig.Record, had brig.Egress) error {
	_, err := e.update(context.WithoutCancel(ctx), rec.Tenant, rec.ID, func(r *brig.Record) error {
		r.Spec.Egress = had
		return nil
	})
	return err
}

// withAuthority returns a sandbox's environment, in which programs that have a
// list of authorities of their own are told of the sandbox's, if requests are
// looked at.
func withAuthority(spec brig.Spec) map[string]string {
	looked := len(spec.Egress.Rules) > 0 && len(spec.Secrets) > 0 // requests may carry them
	for i := range spec.Egress.Rules {
		looked = looked || spec.Egress.Rules[i].IsHTTP()
	}
	if !looked {
		return spec.Env
	}
	env := map[string]string{"NODE_EXTRA_CA_CERTS": wire.AuthorityFile}
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO"} {
		env[name] = wire.BundleFile
	}
	maps.Copy(env, spec.Env)
	return env
}
