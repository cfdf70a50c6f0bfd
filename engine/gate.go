package engine

import (
	"context"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// visit is one call's way through the engine: enter and leave are the only
// way in and out.
type visit struct {
	e     *Engine
	op    brig.Op
	actor brig.Actor
	rec   *brig.Record // of the sandbox that the call names, if it names one
	id    brig.ID      // what the audit log is told
	// pending says that the intent is not on record yet: it goes with the
	// record that the call writes first. told says that the outcome is.
	pending, told bool
}

// enter lets a call in or refuses it: who is it, may they, and is the sandbox
// theirs. The intent of a changing call is on record before anything changes;
// a call that begins with a record of its own writes both at once.
func (e *Engine) enter(ctx context.Context, op brig.Op, name string) (*visit, error) {
	v := &visit{e: e, op: op, actor: brig.ActorFrom(ctx)}
	if err := e.admit(ctx, v, name); err != nil {
		_ = v.note(ctx, v.event(brig.Refused, err)) // the caller is told no in any case
		return nil, err
	}
	switch {
	case op == brig.OpRun, op == brig.OpCreate:
		v.pending = true
	case op == brig.OpRunCode:
		// What code does to variables does not outlive a power cut either; the
		// outcome's write makes both events durable.
		if err := e.Store.Soon().Append(ctx, v.event(brig.Intent, nil)); err != nil {
			return nil, err
		}
	case op.Changes:
		if err := e.Store.Append(ctx, v.event(brig.Intent, nil)); err != nil {
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
	if v.actor.Role < v.op.Role {
		return brig.Errorf(brig.PermissionDenied, "%s needs the role %s, this key has %s", v.op.Name, v.op.Role, v.actor.Role).
			WithHint("use a key with that role")
	}
	if !named(v.op) {
		return nil
	}
	rec, err := e.Store.Get(ctx, v.actor.Tenant, name)
	if err != nil {
		return err
	}
	v.rec, v.id = rec, rec.ID
	return nil
}

// named tells the operations that are about one sandbox.
func named(op brig.Op) bool {
	switch op {
	case brig.OpGet, brig.OpExec, brig.OpGetExec, brig.OpListExecs, brig.OpLogs,
		brig.OpExtend, brig.OpStop, brig.OpKill, brig.OpRemove,
		brig.OpCreateContext, brig.OpContexts, brig.OpRunCode, brig.OpInterrupt, brig.OpRestart, brig.OpRemoveContext:
		return true
	}
	return false
}

func (v *visit) event(p brig.Phase, err error) brig.Event {
	return brig.Event{
		At: v.e.Now().UTC(), Op: v.op.Name, Actor: v.actor.Name, Tenant: v.actor.Tenant,
		Sandbox: v.id, Phase: p, Kind: brig.KindOf(err),
	}
}

// note writes events, also when the caller has gone.
func (v *visit) note(ctx context.Context, events ...brig.Event) error {
	err := v.e.Store.Append(context.WithoutCancel(ctx), events...)
	if err != nil {
		v.e.Log.ErrorContext(ctx, "write audit events", "op", v.op.Name, "err", err)
	}
	return err
}

// intent is the event that goes with the call's first record.
func (v *visit) intent() brig.Event {
	v.pending = false
	return v.event(brig.Intent, nil)
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
	if v.op.Changes && (!v.told || *err != nil) {
		events := []brig.Event{v.event(brig.Finish, *err)}
		if v.pending {
			events = []brig.Event{v.intent(), events[0]}
		}
		if lost := v.note(ctx, events...); *err == nil {
			// What is not on record is not acknowledged.
			*err = lost
		}
	}
	if *err == nil {
		return
	}
	told := brig.AsError(*err)
	if told.Err != nil {
		v.e.Log.ErrorContext(ctx, v.op.Name, "sandbox", v.id, "code", told.Kind.Code(), "err", *err)
	}
	*err = told
}
