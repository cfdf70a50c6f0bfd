package engine

import "context"

// ctxMutex is a mutex whose waiters stop waiting when their context is
// canceled.
type ctxMutex chan struct{}

func newCtxMutex() ctxMutex { return make(ctxMutex, 1) }

// locksDisabled disables the locks. Only tests set it, in their controls.
var locksDisabled bool

// lock waits for the lock. The caller releases it with done.
func (t ctxMutex) lock(ctx context.Context) (done func(), err error) {
	if locksDisabled {
		return func() {}, nil
	}
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// lockRecords serializes changes of the tenant's stored records: secrets,
// sessions, tools and outcomes. The records that the caller reads stay valid
// until it calls done, so that limits hold and no change is lost. lockRecords
// rejects changes of a tenant that is being removed.
func (a *account) lockRecords(ctx context.Context) (done func(), err error) {
	return a.lockUnlessClosed(ctx, a.records)
}

// lockWorkspaces is like lockRecords, for the names of workspaces. They have
// their own lock because workspaces are objects, perhaps in a slow bucket, and
// other changes must not wait for them.
func (a *account) lockWorkspaces(ctx context.Context) (done func(), err error) {
	return a.lockUnlessClosed(ctx, a.workspaces)
}

func (a *account) lockUnlessClosed(ctx context.Context, t ctxMutex) (done func(), err error) {
	if done, err = t.lock(ctx); err != nil {
		return nil, err
	}
	if err := a.CheckOpen(); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// awaitChanges waits until all changes of a closed account have ended. No
// change begins until done is called.
func (a *account) awaitChanges(ctx context.Context) (done func(), err error) {
	records, err := a.records.lock(ctx)
	if err != nil {
		return nil, err
	}
	workspaces, err := a.workspaces.lock(ctx)
	if err != nil {
		records()
		return nil, err
	}
	return func() { workspaces(); records() }, nil
}
