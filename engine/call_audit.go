package engine

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// callAudit writes the audit events of one call: the intent before anything
// changes, and the outcome at the end.
//
//	state       how the intent is written                         next state
//	written     it is written, or the operation changes nothing   -
//	pending     with the first record that the call writes,       written, by intentEvents
//	            or with the outcome
//	concurrent  by a goroutine, while the call runs               written, by awaitIntent
//	delayed     with the outcome; by a timer if the call takes    written, by intentEvents or
//	            longer than intentDelay                           awaitIntent
//
// A caller sees no effect of the call before awaitIntent has returned nil.
type callAudit struct {
	op    brig.Op
	actor brig.Actor
	id    brig.ID // ID of the sandbox that the events name
	hash  string  // hash of the code that the call runs

	now    func() time.Time
	log    *slog.Logger
	stored brig.Store

	state       intentState
	waitWritten func() error              // concurrent, delayed: waits until the intent is written
	cancelTimer func() (brig.Event, bool) // delayed: cancels the timer and returns the intent
	flushed     bool                      // the outcome is written
	buffered    bool                      // the caller receives nothing before the end of the call
	suppressed  bool                      // the call is part of another call, which writes the events
	detail      map[string]string         // details of subsequent events; see addDetail
}

// intentState is the state of a call's intent.
type intentState int

const (
	intentWritten intentState = iota
	intentPending
	intentConcurrent
	intentDelayed
)

func (g *gate) newAudit(ctx context.Context, op brig.Op) callAudit {
	a := callAudit{op: op, actor: brig.ActorFrom(ctx), now: g.Now, log: g.Log, stored: g.Store}
	a.addActor()
	return a
}

// nestedAudit returns a callAudit for a nested part of this call. The nested audit writes no
// events.
func (a *callAudit) nestedAudit() callAudit {
	return callAudit{op: a.op, actor: a.actor, now: a.now, log: a.log, stored: a.stored, suppressed: true}
}

// begin records the intent of a call that the gate has admitted, or arranges for
// it to be recorded. inside is true if the call has no effect outside its
// sandbox.
func (a *callAudit) begin(ctx context.Context, inside bool) error {
	switch {
	case a.op == brig.OpRun, a.op == brig.OpCreate:
		a.state = intentPending
	case inside && a.buffered:
		a.writeDelayed(ctx)
	case inside:
		intent := a.event(brig.Intent, nil)
		a.writeConcurrently(func() error { return a.store().Append(context.WithoutCancel(ctx), intent) })
	case a.op.Changes:
		if err := a.store().Append(ctx, a.event(brig.Intent, nil)); err != nil {
			return err
		}
		failpoint.Hit("gate.intent")
	}
	return nil
}

// writeConcurrently runs f, which writes the intent, in parallel with the call. It is for code in a
// sandbox: the effects do not leave the sandbox, and the output is held back until awaitIntent
// returns.
func (a *callAudit) writeConcurrently(f func() error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	a.state, a.waitWritten = intentConcurrent, sync.OnceValue(func() error { return <-done })
}

// intentDelay is how long the intent waits to be written together with the outcome.
const intentDelay = time.Millisecond

// writeDelayed writes the intent together with the outcome if the call ends
// within intentDelay, and in parallel with the call otherwise. This saves a
// commit for cells that take no longer than a commit.
func (a *callAudit) writeDelayed(ctx context.Context) {
	intent := a.event(brig.Intent, nil)
	write := func() error { return a.store().Append(context.WithoutCancel(ctx), intent) }
	done := make(chan error, 1)
	timer := time.AfterFunc(intentDelay, func() { done <- write() })
	a.state, a.waitWritten = intentDelayed, sync.OnceValue(func() error {
		if timer.Stop() {
			return write()
		}
		return <-done
	})
	a.cancelTimer = func() (brig.Event, bool) { return intent, timer.Stop() }
}

// intentEvents returns the events that the caller writes with its first record, or with the
// outcome: the intent, unless the intent is already written or being written.
func (a *callAudit) intentEvents() []brig.Event {
	switch a.state {
	case intentPending:
		a.state = intentWritten
		return []brig.Event{a.event(brig.Intent, nil)}
	case intentDelayed:
		if intent, ok := a.cancelTimer(); ok {
			a.state = intentWritten
			return []brig.Event{intent}
		}
	}
	return nil
}

// awaitIntent waits until the intent is written, and returns the error of the write.
func (a *callAudit) awaitIntent() error {
	if !a.isWriting() {
		return nil
	}
	return a.waitWritten()
}

// isWriting reports whether the intent is being written while the call runs.
func (a *callAudit) isWriting() bool { return a.state == intentConcurrent || a.state == intentDelayed }

// outcomeEvent returns the event that the caller writes with its last record.
func (a *callAudit) outcomeEvent() brig.Event {
	a.flushed = true
	return a.event(brig.Finish, nil)
}

// flush writes the remaining events at the end of the call. The call fails if its events could not
// be written, because Brig acknowledges only recorded operations.
func (a *callAudit) flush(ctx context.Context, err error) error {
	events := a.intentEvents()
	if lost := a.awaitIntent(); err == nil {
		err = lost
	}
	if a.op.Changes && (!a.flushed || err != nil) {
		events = append(events, a.event(brig.Finish, err))
		if lost := a.append(ctx, events...); err == nil {
			err = lost
		}
	}
	return err
}

// nextAttempt records the end of the attempt that failed with err, if the attempt had begun, and
// prepares the call for the next attempt.
func (a *callAudit) nextAttempt(ctx context.Context, err error) {
	if !a.suppressed && a.state != intentPending && a.id != "" {
		_ = a.append(ctx, a.event(brig.Finish, err)) // append logs the error
		a.state, a.flushed = intentPending, false
	}
	if a.state != intentPending {
		a.state = intentWritten
	}
	a.id = ""
}

func (a *callAudit) event(p brig.Phase, err error) brig.Event {
	return brig.Event{
		At: a.now().UTC(), Op: a.op.Name, Actor: a.actor.Name, Tenant: a.actor.Tenant,
		Sandbox: a.id, Phase: p, Kind: brig.KindOf(err), Detail: maps.Clone(a.detail), // a copy, because events are written while the call runs
	}
}

// store returns the store that the call's events are written to. The effects inside a sandbox are
// lost in a power failure, so their events need not be synced to disk.
func (a *callAudit) store() brig.Store {
	switch a.op {
	case brig.OpRunCode, brig.OpRun, brig.OpStart, brig.OpSignal,
		brig.OpMakeDir, brig.OpMove, brig.OpUnlink, brig.OpWrite, brig.OpCompose:
		return a.stored.Soon()
	}
	return a.stored
}

// append writes events, even if the caller's context is canceled.
func (a *callAudit) append(ctx context.Context, events ...brig.Event) error {
	err := a.store().Append(context.WithoutCancel(ctx), events...)
	if err != nil {
		a.log.ErrorContext(ctx, "failed to write audit events", "op", a.op.Name, "err", err)
	}
	return err
}

// holdOutput returns sio with writers that hold output back until the intent is written.
func (a *callAudit) holdOutput(sio brig.IO) brig.IO {
	if !a.isWriting() {
		return sio
	}
	for _, w := range []*io.Writer{&sio.Stdout, &sio.Stderr} {
		if *w != nil {
			*w = recordedWriter{a, *w}
		}
	}
	if started := sio.Started; started != nil {
		sio.Started = func(id string) {
			if a.awaitIntent() == nil {
				started(id)
			}
		}
	}
	return sio
}

type recordedWriter struct {
	a *callAudit
	io.Writer
}

func (w recordedWriter) Write(p []byte) (int, error) {
	if err := w.a.awaitIntent(); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}
