package engine

import (
	"context"
	"sync"
	"time"
)

const (
	// sweepAllInterval is the interval of the sweep of all tenants' workspaces. The first sweep
	// begins sweepAllDelay after the start of the server, and removes the remains of a killed
	// server.
	sweepAllInterval = 24 * time.Hour
	sweepAllDelay    = time.Minute
	// sweepRestFactor is the minimum time between two sweeps of a tenant, as a multiple of the
	// duration of the last one. A sweep reads the manifests of all versions and blocks the tenant's
	// commits, and an ordinary conflict of two commits requires a sweep. Until the next sweep, the
	// remains of failed commits count against the tenant's quota. The duration includes the wait
	// for commits, so maxSweepRest limits the time.
	sweepRestFactor = 20
	minSweepRest    = time.Minute
	maxSweepRest    = time.Hour
)

// sweepQueue holds the tenants whose workspaces are being swept or wait for a
// sweep.
type sweepQueue struct {
	mu         sync.Mutex
	sweepAgain map[string]bool // by tenant: whether another sweep must follow the current one
}

// add notes that a tenant needs a sweep. It reports whether the caller must start the sweep.
// Otherwise, the goroutine that already sweeps the tenant repeats it.
func (s *sweepQueue) add(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, busy := s.sweepAgain[tenant]; busy {
		s.sweepAgain[tenant] = true
		return false
	}
	if s.sweepAgain == nil {
		s.sweepAgain = map[string]bool{}
	}
	s.sweepAgain[tenant] = false
	return true
}

// done ends a sweep, and reports whether another one must follow.
func (s *sweepQueue) done(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sweepAgain := s.sweepAgain[tenant]
	s.sweepAgain[tenant] = false
	if !sweepAgain {
		delete(s.sweepAgain, tenant)
	}
	return sweepAgain
}

// sweepWorkspaces removes the unreferenced objects of a tenant in the
// background. Concurrent requests share a sweep.
func (ws *workspaces) sweepWorkspaces(tenant string) {
	if !ws.sweeps.add(tenant) {
		return
	}
	ws.background.Go(func() {
		for {
			begin := time.Now()
			ws.sweepNow(tenant)
			select {
			case <-time.After(min(max(sweepRestFactor*time.Since(begin), minSweepRest), maxSweepRest)):
			case <-ws.ctx.Done():
				return
			}
			if !ws.sweeps.done(tenant) {
				return
			}
		}
	})
}

// sweepNow sweeps the workspaces of one tenant.
func (ws *workspaces) sweepNow(tenant string) {
	n, err := ws.Options.Workspaces.Sweep(ws.ctx, tenant)
	if err != nil && ws.ctx.Err() == nil {
		ws.Log.Error("failed to sweep workspaces", "tenant", tenant, "err", err)
		return
	}
	ws.Log.Debug("swept workspaces", "tenant", tenant, "objects", n)
}

// sweepIfNeeded sweeps a tenant's workspaces if a commit has left objects that no version
// references, because the commit failed, was canceled or lost a race.
func (ws *workspaces) sweepIfNeeded(tenant string) {
	if ws.Options.Workspaces.NeedsSweep(tenant) {
		ws.sweepWorkspaces(tenant)
	}
}

// sweepPeriodically sweeps all tenants a short time after the start, and once a
// day.
func (ws *workspaces) sweepPeriodically() {
	for wait := sweepAllDelay; ; wait = sweepAllInterval {
		select {
		case <-time.After(wait):
			ws.sweepAll()
		case <-ws.ctx.Done():
			return
		}
	}
}

// sweepAll sweeps all tenants with objects sequentially. Removed tenants are included.
func (ws *workspaces) sweepAll() {
	all, err := ws.Options.Workspaces.Tenants(ws.ctx)
	if err != nil && ws.ctx.Err() == nil {
		ws.Log.Error("failed to list the tenants that have workspaces", "err", err)
	}
	for _, tenant := range all {
		if ws.ctx.Err() != nil {
			return
		}
		ws.sweepNow(tenant)
	}
}

// dropWorkspaces removes all workspaces of a tenant that is being removed,
// since a later tenant of the same name must not find them.
func (ws *workspaces) dropWorkspaces(ctx context.Context, tenant string) error {
	if ws.Options.Workspaces == nil {
		return nil
	}
	all, err := ws.Options.Workspaces.List(ctx, tenant)
	for _, w := range all {
		if err == nil {
			err = ws.Options.Workspaces.Remove(ctx, tenant, w.Name)
		}
	}
	if err == nil {
		// An earlier attempt may have removed only the names.
		ws.sweepWorkspaces(tenant)
	}
	return err
}
