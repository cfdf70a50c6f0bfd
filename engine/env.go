package engine

import (
	"context"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/capacity"
	"github.com/brig-run/brig/engine/output"
	"github.com/brig-run/brig/engine/placement"
)

// env is the state that all parts of the engine share.
type env struct {
	Options
	ctx        context.Context // canceled by Close
	cancel     context.CancelFunc
	background sync.WaitGroup // background goroutines; Close waits for them

	sandboxes        sandboxes
	capacity         *capacity.Limiter
	backends         *placement.Backends
	builtinID        string // the ID of Options.Provider
	relays           *output.Relays
	messages         *output.Budget // for the messages of interpreters and tools
	executionCounter executionCounter
}

// instance returns the live instance of a sandbox, or nil if it has none.
func (e *env) instance(id brig.ID) brig.Instance {
	return e.sandboxes.get(id).instance
}

// hasEnded reports whether an instance has ended.
func hasEnded(in brig.Instance) bool {
	select {
	case <-in.Done():
		return true
	default:
		return false
	}
}

// hasEnded reports whether an execution has ended, according to its instance.
// The output of the execution may still wait for a reader.
func (e *env) hasEnded(ctx context.Context, in brig.Instance, id string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), execsTimeout)
	defer cancel()
	execs, err := in.Execs(ctx)
	if err != nil {
		return hasEnded(in)
	}
	for _, k := range execs {
		if k.ExecID == id {
			return k.Done || k.Draining
		}
	}
	return false
}

// awaitEnd waits at most for the timeout until an instance is reported as ended, after an operation
// in the instance has failed.
func (e *env) awaitEnd(ctx context.Context, in brig.Instance, timeout time.Duration) {
	select {
	case <-in.Done():
	case <-time.After(timeout):
	case <-ctx.Done():
	case <-e.ctx.Done():
	}
}

// runEvery calls f repeatedly until the engine ends.
func (e *env) runEvery(d time.Duration, f func()) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-t.C:
			f()
		}
	}
}

// rateOf returns the price of a provider: the rate in the server's
// configuration, or else the one in the provider's terms.
func (e *env) rateOf(now *placement.Snapshot, provider string) brig.Rate {
	if rate, ok := e.Rates[provider]; ok {
		return rate
	}
	return brig.Rate{PerSecond: now.Terms[provider].Second}
}

// reportCreation reports the result of a creation to the observer.
func (e *env) reportCreation(provider string, what brig.CreationPurpose, begin time.Time, err error) {
	e.Observer.InstanceCreated(brig.CreationReport{Provider: provider, For: what, Took: time.Since(begin), Err: err})
}

// updateRecord changes a record, and retries if another writer changed it
// concurrently.
func (e *env) updateRecord(ctx context.Context, tenant string, id brig.ID, change func(*brig.Record) error) (*brig.Record, error) {
	return e.updateRecordWith(ctx, tenant, id, change, func(*brig.Record) []brig.Event { return nil })
}

// updateRecordWith is like updateRecord, and writes events with the changed
// record.
func (e *env) updateRecordWith(ctx context.Context, tenant string, id brig.ID, change func(*brig.Record) error, events func(*brig.Record) []brig.Event) (*brig.Record, error) {
	for {
		rec, err := e.Store.Get(ctx, tenant, string(id))
		if err != nil {
			return nil, err
		}
		before := rec.State
		if err := change(rec); err != nil {
			return nil, err
		}
		if err := before.CheckTransition(rec.State); err != nil {
			return nil, err
		}
		err = e.Store.Put(ctx, rec, events(rec)...)
		if brig.KindOf(err) != brig.FailedPrecondition {
			return rec, err
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
	}
}

func (e *env) isPendingDelete(id brig.ID) bool {
	return e.sandboxes.get(id).pendingDelete != nil
}

// deleteRecord deletes the record of a sandbox that did not start. On a full disk, even the
// deletion may fail. The engine then hides the record until a retry succeeds.
func (e *env) deleteRecord(ctx context.Context, rec *brig.Record) {
	ctx, cancel := detachedContext(ctx)
	defer cancel()
	err := e.Store.Delete(ctx, rec.ID)
	if err != nil {
		e.Log.ErrorContext(ctx, "failed to remove the record of a sandbox that did not start", "sandbox", rec.ID, "err", err)
	}
	e.sandboxes.update(rec.ID, func(s *sandbox) {
		if s.pendingDelete = nil; err != nil {
			s.pendingDelete = rec
		}
	})
}

// retryDeletes retries the deletions that failed.
func (e *env) retryDeletes(ctx context.Context) {
	var list []*brig.Record
	e.sandboxes.updateEach(func(_ brig.ID, s *sandbox) {
		if s.pendingDelete != nil {
			list = append(list, s.pendingDelete)
		}
	})
	for _, rec := range list {
		e.deleteRecord(ctx, rec)
	}
}

// releaseBackend releases one use of a backend.
func (e *env) releaseBackend(backend *placement.Backend) {
	if backend == nil {
		return
	}
	if err := backend.Release(); err != nil {
		e.Log.Warn("failed to close an unused provider", "provider", backend.ID, "err", err)
	}
}

// CountEgress counts the bytes that a sandbox has exchanged with the outside.
// An error of kind RateLimited means that the sandbox's tenant has used up
// today's quota.
func (e *env) CountEgress(id brig.ID, bytes int64) error {
	p := e.sandboxes.get(id).reservation
	if p == nil {
		return brig.Errorf(brig.FailedPrecondition, "the sandbox has ended")
	}
	return p.ChargeEgress(bytes)
}

// tenantMessageBudget and serverMessageBudget are the budgets of one tenant and of the server for
// partially received messages of interpreters and tools. A message has at most 64 MiB. The first
// 256 KiB of each process are exempt.
const (
	tenantMessageBudget = 128 << 20
	serverMessageBudget = 512 << 20
)

// limitMessages charges the messages of a process to its tenant's budget. Processes of
// some providers buffer no messages.
func (e *env) limitMessages(p brig.Process, tenant string) {
	if p, ok := p.(interface{ LimitMessages(b brig.MessageBudget) }); ok {
		p.LimitMessages(e.messages.ForTenant(tenant))
	}
}
