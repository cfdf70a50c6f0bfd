package engine

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/span"
)

// visit is one call's way through the engine: enter and leave are the only
// way in and out.
type visit struct {
	e     *Engine
	op    brig.Op
	actor brig.Actor
	rec   *brig.Record // of the sandbox that the call names, if it names one
	// account is the tenant's; bounds and ceilings hold for what it asks for.
	account  *account
	bounds   brig.Bounds
	ceilings brig.Ceilings
	id       brig.ID // what the audit log is told
	// pending says that the intent is not on record yet: it goes with the
	// record that the call writes first. told says that the outcome is.
	pending, told bool
	aside         bool              // an errand of another visit, which alone is on record
	detail        map[string]string // of the events that come; see say
	hash          string            // of the code that is run
	rest          func()            // lets the machine sleep again
	beside        func() error      // waits for what is written beside the call; nil for nothing
	mute          bool              // the caller is told nothing before the call's end
	// unwritten takes back an intent that is to be written and is not yet; nil for
	// none.
	unwritten func() (brig.Event, bool)

	// ran is what is told of an execution; nil for calls that are none.
	ran     *brig.Ran
	place   *brig.Record // where it is
	began   time.Time    // when the program was given to its machine
	running string       // the provider where it goes on
	lined   bool         // its line is in the log, or will be
}

// enter lets a call in or refuses it: who is it, may they, and is the sandbox
// theirs. The intent of a changing call is on record before anything changes;
// a call that begins with a record of its own writes both at once. What is
// known of the call from the beginning, say says.
func (e *Engine) enter(ctx context.Context, op brig.Op, name string, say ...func(*visit)) (*visit, error) {
	v := &visit{e: e, op: op, actor: brig.ActorFrom(ctx)}
	v.sayActor()
	_, s := span.Start(ctx, "gate")
	s.Set("brig.operation", op.Name)
	defer s.End()
	if err := e.admit(ctx, v, name); err != nil {
		if brig.KindOf(err) != brig.RateLimited { // what comes too often must not be written as often
			_ = v.note(ctx, v.event(brig.Refused, err)) // the caller is told no in any case
		}
		e.Observer.Refused(op.Name, brig.KindOf(err))
		s.Fail(brig.KindOf(err).Code())
		return nil, err
	}
	if v.rec != nil && op.Changes {
		v.say(brig.DetailName, v.rec.Spec.Name)
		v.sayLabels(v.rec.Spec.Labels)
	}
	v.expect()
	for _, f := range say {
		f(v)
	}
	switch {
	case op == brig.OpRun, op == brig.OpCreate:
		v.pending = true
	case op == brig.OpRunCode && len(v.rec.Spec.Egress.Rules) == 0:
		intent := v.event(brig.Intent, nil)
		write := func() error { return v.store().Append(context.WithoutCancel(ctx), intent) }
		if v.mute {
			v.writeSoon(intent, write)
		} else {
			v.writeBeside(write)
		}
	case op.Changes:
		if err := v.store().Append(ctx, v.event(brig.Intent, nil)); err != nil {
			return nil, err
		}
		failpoint.Hit("gate.intent")
	}
	e.visits.Add(1)
	return v, nil
}

func (e *Engine) admit(ctx context.Context, v *visit, name string) error {
	if v.actor.Role == brig.Nobody {
		return brig.Errorf(brig.Unauthenticated, "no credentials").
			WithHint("send the key as `Authorization: Bearer KEY`")
	}
	if end := v.actor.Expires; !end.IsZero() && !e.Now().Before(end) {
		// A door has looked when the caller came. A connection, or a token that was
		// made of what the caller has shown, may have lasted longer.
		return brig.Errorf(brig.Unauthenticated, "what the caller has shown has expired").WithHint("ask whoever gave it for a new one")
	}
	if v.actor.Role < v.op.Role {
		return brig.Errorf(brig.PermissionDenied, "%s needs the role %s, this key has %s", v.op.Name, v.op.Role, v.actor.Role).
			WithHint("use a key with that role")
	}
	if !brig.InScope(v.actor.Scopes, v.op.Name) {
		return brig.Errorf(brig.PermissionDenied, "%s is not in the scope of this key", v.op.Name).
			WithHint("its scopes are %s", clip(strings.Join(v.actor.Scopes, ", ")))
	}
	if err := e.onBehalf(ctx, v); err != nil {
		return err
	}
	if !v.op.Sandbox {
		return v.beyondGrant("")
	}
	rec, err := e.find(ctx, v.actor.Tenant, name)
	if err == nil && e.isUnwanted(rec.ID) {
		err = brig.Errorf(brig.NotFound, "no sandbox %q", clip(name)).WithHint("list sandboxes to see what exists")
	}
	if len(v.actor.Sandboxes) > 0 && (err == nil || brig.KindOf(err) == brig.NotFound) {
		// Whether there is another is not the bearer's to know.
		asked := name
		if err == nil {
			asked = rec.Spec.Name
		}
		if denied := v.beyondGrant(asked); denied != nil {
			return denied
		}
	}
	if err != nil {
		return err
	}
	v.rec, v.id = rec, rec.ID
	return nil
}

// onBehalf finds the tenant for which the caller acts, and counts the call.
func (e *Engine) onBehalf(ctx context.Context, v *visit) (err error) {
	v.account, err = e.account(ctx, v.actor.Tenant)
	if brig.KindOf(err) == brig.NotFound {
		return brig.Errorf(brig.PermissionDenied, "there is no tenant %q to act for", clip(v.actor.Tenant)).
			WithHint("an operator creates tenants with brig tenant create")
	}
	if err != nil {
		return err
	}
	v.bounds, v.ceilings = v.account.terms()
	return v.account.allow(v.actor.Key)
}

// find finds a sandbox of a tenant by its name, its id, or both in the form
// {tenant}:{name}:{id}.
func (e *Engine) find(ctx context.Context, tenant, name string) (*brig.Record, error) {
	whose, called, id, ok := brig.ParseScopedID(name)
	if !ok {
		return e.Store.Get(ctx, tenant, name)
	}
	if whose == tenant {
		rec, err := e.Store.Get(ctx, tenant, string(id))
		if err == nil && rec.ID == id && rec.Spec.Name == called {
			return rec, nil
		}
		if err != nil && brig.KindOf(err) != brig.NotFound {
			return nil, err
		}
	}
	return nil, brig.Errorf(brig.NotFound, "no sandbox %q", clip(name)).WithHint("list sandboxes to see what exists")
}

// beyondGrant refuses whoever may use some sandboxes what is not about one of
// them. Whoever creates one is asked again for its name.
func (v *visit) beyondGrant(name string) error {
	if len(v.actor.Sandboxes) == 0 || slices.Contains(v.actor.Sandboxes, name) ||
		name == "" && (v.op == brig.OpCreate || v.op == brig.OpCreateGrant) {
		return nil
	}
	return brig.Errorf(brig.PermissionDenied, "this is beyond the grant").
		WithHint("it is for the sandboxes %s", clip(strings.Join(v.actor.Sandboxes, ", ")))
}

func (v *visit) event(p brig.Phase, err error) brig.Event {
	return brig.Event{
		At: v.e.Now().UTC(), Op: v.op.Name, Actor: v.actor.Name, Tenant: v.actor.Tenant,
		Sandbox: v.id, Phase: p, Kind: brig.KindOf(err), Detail: v.details(),
	}
}

// store is where the call's events go. What is done inside a sandbox does not
// outlive a power cut, so its events need not wait for the disk.
func (v *visit) store() brig.Store {
	switch v.op {
	case brig.OpRunCode, brig.OpRun, brig.OpStart, brig.OpSignal,
		brig.OpMakeDir, brig.OpMove, brig.OpUnlink, brig.OpWrite, brig.OpCompose:
		return v.e.Store.Soon()
	}
	return v.e.Store
}

// writeBeside has f write the intent while the call goes on. It is for code
// that runs in a sandbox: what it does stays in there, and nothing comes out
// before recorded has returned.
func (v *visit) writeBeside(f func() error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	v.beside = sync.OnceValue(func() error { return <-done })
}

// writeSoon calls write, which writes the intent, in a moment beside the call. One that
// is over by then writes it with its outcome: one commit less, for cells that
// take as long as a commit does.
func (v *visit) writeSoon(intent brig.Event, write func() error) {
	done := make(chan error, 1)
	timer := time.AfterFunc(moment, func() { done <- write() })
	v.beside = sync.OnceValue(func() error {
		if timer.Stop() {
			return write()
		}
		return <-done
	})
	v.unwritten = func() (brig.Event, bool) { return intent, timer.Stop() }
}

// moment is how long an intent waits for an outcome to go with.
const moment = time.Millisecond

// recorded returns when the intent is on record, or says why it is not.
func (v *visit) recorded() error {
	if v.beside == nil {
		return nil
	}
	return v.beside()
}

// withhold returns sio, to which nothing goes before the intent is on record.
func (v *visit) withhold(sio brig.IO) brig.IO {
	if v.beside == nil {
		return sio
	}
	for _, w := range []*io.Writer{&sio.Stdout, &sio.Stderr} {
		if *w != nil {
			*w = recordedWriter{v, *w}
		}
	}
	if started := sio.Started; started != nil {
		sio.Started = func(id string) {
			if v.recorded() == nil {
				started(id)
			}
		}
	}
	return sio
}

type recordedWriter struct {
	v *visit
	io.Writer
}

func (w recordedWriter) Write(p []byte) (int, error) {
	if err := w.v.recorded(); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}

// note writes events, also when the caller has gone.
func (v *visit) note(ctx context.Context, events ...brig.Event) error {
	err := v.store().Append(context.WithoutCancel(ctx), events...)
	if err != nil {
		v.e.Log.ErrorContext(ctx, "write audit events", "op", v.op.Name, "err", err)
	}
	return err
}

// intent is the event that goes with the call's first record, or with its
// outcome, if it is not on record yet.
func (v *visit) intent() []brig.Event {
	if v.unwritten != nil {
		if intent, ok := v.unwritten(); ok {
			v.beside = nil
			return []brig.Event{intent}
		}
	}
	if !v.pending {
		return nil
	}
	v.pending = false
	return []brig.Event{v.event(brig.Intent, nil)}
}

// outcome is the event that goes with the call's last record.
func (v *visit) outcome() brig.Event {
	v.told = true
	return v.event(brig.Finish, nil)
}

// leave ends the visit. It is deferred with the address of the operation's
// named error, and makes of that error what the caller may see: causes stay
// in the log.
func (v *visit) leave(ctx context.Context, err *error) {
	defer v.e.visits.Done()
	defer func() { v.observed(ctx, *err) }()
	events := v.intent()
	if lost := v.recorded(); *err == nil {
		*err = lost
	}
	if v.op.Changes && (!v.told || *err != nil) {
		events = append(events, v.event(brig.Finish, *err))
		if lost := v.note(ctx, events...); *err == nil {
			// What is not on record is not acknowledged.
			*err = lost
		}
	}
	if *err == nil {
		return
	}
	told := brig.AsError(*err)
	if told.Err != nil && told.Kind != brig.Canceled {
		level := slog.LevelError
		if told.Kind == brig.InvalidArgument || told.Kind == brig.NotFound {
			level = slog.LevelDebug // it is the caller's own doing
		}
		v.e.Log.Log(ctx, level, v.op.Name, "sandbox", v.id, "code", told.Kind.Code(), "err", *err)
	}
	*err = told
}
