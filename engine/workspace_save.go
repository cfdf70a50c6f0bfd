package engine

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

const (
	// saveInterval is the default interval at which a workspace of the mode
	// direct is written back while its sandbox runs.
	saveInterval = 5 * time.Minute
	// saveRestFactor is the minimum time between two write-backs, as a multiple
	// of the duration of the last one. Each write-back reads the whole
	// workspace.
	saveRestFactor = 20
	// closeSaveTimeout is the timeout for writing back all workspaces when a
	// server stops.
	closeSaveTimeout = 20 * time.Second
)

// isWrittenBack reports whether a sandbox's workspace is written back
// automatically.
func isWrittenBack(spec brig.Spec) bool {
	return spec.Workspace.Mode == brig.WorkspaceDirect && !spec.Ephemeral
}

// commitLock serializes the commits of a sandbox's workspace, so that files of
// an earlier commit do not become a later version. The returned function
// unlocks it.
func (ws *workspaces) commitLock(id brig.ID) (unlock func()) {
	var l *commitLock
	ws.sandboxes.update(id, func(s *sandbox) {
		if s.commit == nil {
			s.commit = &commitLock{}
		}
		l = s.commit
		l.users++
	})
	l.Lock()
	return func() {
		l.Unlock()
		ws.sandboxes.update(id, func(s *sandbox) {
			if l.users--; l.users == 0 {
				s.commit = nil
			}
		})
	}
}

type commitLock struct {
	sync.Mutex
	users int // guarded by the table's mutex
}

// saveWorkspace periodically writes a workspace back while its sandbox runs, so
// that a crash loses no more than one interval. It stops when the instance is
// detached.
func (ws *workspaces) saveWorkspace(rec *brig.Record, in brig.Instance, detached <-chan struct{}) {
	if !isWrittenBack(rec.Spec) || ws.SaveEvery < 0 {
		return
	}
	ws.background.Go(func() {
		wait := ws.SaveEvery
		for {
			select {
			case <-in.Done():
				return
			case <-detached:
				return
			case <-ws.ctx.Done():
				return
			case <-time.After(wait):
			}
			begin := time.Now()
			if !ws.isEnding(rec.ID) && !ws.isPaused(rec.ID) { // a paused sandbox does not change its files
				ws.saveNow(ws.ctx, rec.Tenant, rec.ID, in)
			}
			wait = max(ws.SaveEvery, saveRestFactor*time.Since(begin))
		}
	})
}

// saveNow writes back the workspace of a sandbox that continues to run.
func (ws *workspaces) saveNow(ctx context.Context, tenant string, id brig.ID, in brig.Instance) {
	ctx, cancel := context.WithTimeout(ctx, writeBackTimeout)
	defer cancel()
	rec, err := ws.Store.Get(ctx, tenant, string(id))
	if err != nil || rec.State != brig.Running {
		return
	}
	out, err := ws.commit(ctx, rec, in, "")
	if err != nil {
		if !hasEnded(in) && ctx.Err() == nil {
			ws.Log.WarnContext(ctx, "failed to save a workspace while its sandbox runs; retrying", "sandbox", id, "err", err)
		}
		return
	}
	if out.Version == nil || out.Changed == 0 {
		return
	}
	if err := ws.recordCommit(ctx, rec, out, nil); err != nil {
		ws.Log.ErrorContext(ctx, "failed to record that a workspace was saved", "sandbox", id, "err", err)
	}
}

// recordCommit records whether a workspace was written back.
func (ws *workspaces) recordCommit(ctx context.Context, rec *brig.Record, out *brig.WorkspaceCommit, err error) error {
	event := brig.Event{
		At: ws.Now().UTC(), Op: brig.OpCommitWorkspace.Name, Actor: brig.ActorFrom(ctx).Name, Tenant: rec.Tenant,
		Sandbox: rec.ID, Phase: brig.Observed, Kind: brig.KindOf(err),
		Detail: map[string]string{brig.DetailWorkspace: rec.Spec.Workspace.Name},
	}
	if err == nil && out.Version != nil {
		event.Detail[brig.DetailVersion] = strconv.Itoa(out.Version.Number)
	}
	return ws.Store.Append(ctx, event)
}

// SaveWorkspaces writes back workspaces before the server stops, for up to
// closeSaveTimeout. Their sandboxes continue to run, but their leases may end
// while no server runs.
func (ws *workspaces) SaveWorkspaces() {
	if ws.SaveEvery < 0 || ws.Options.Workspaces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ws.ctx, closeSaveTimeout)
	defer cancel()
	var live []*brig.Record
	if err := ws.Store.All(ctx, func(r *brig.Record) error {
		if isWrittenBack(r.Spec) && r.State == brig.Running {
			live = append(live, r)
		}
		return nil
	}); err != nil {
		ws.Log.ErrorContext(ctx, "failed to find the workspaces to save", "err", err)
	}
	slots := make(chan struct{}, maxConcurrentRecoveries)
	var work sync.WaitGroup
	for _, r := range live {
		in := ws.instance(r.ID)
		if in == nil || hasEnded(in) || ws.isPaused(r.ID) {
			continue
		}
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			ws.saveNow(ctx, r.Tenant, r.ID, in)
		})
	}
	work.Wait()
}

// isPaused reports whether a sandbox is paused now.
func (ws *workspaces) isPaused(id brig.ID) bool {
	s := ws.sandboxes.get(id).idlePauser
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frozen
}
