package mem

import (
	"context"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// PutExec implements brig.Store.
func (s *executions) PutExec(ctx context.Context, x *brig.Execution) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if _, ok := s.records[x.Sandbox]; !ok {
		return contract.SandboxNotFoundError(string(x.Sandbox))
	}
	if s.execs[x.Sandbox] == nil {
		s.execs[x.Sandbox] = map[string]*brig.Execution{}
	}
	if old := s.execs[x.Sandbox][x.ExecID]; old != nil && old.Done && !x.Done {
		return nil // the execution has ended since x was read
	}
	s.execs[x.Sandbox][x.ExecID] = cloneExec(x)
	return nil
}

// GetExec implements brig.Store.
func (s *executions) GetExec(ctx context.Context, sandbox brig.ID, execID string) (*brig.Execution, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	x, ok := s.execs[sandbox][execID]
	if !ok {
		return nil, contract.ExecNotFoundError(execID)
	}
	return cloneExec(x), nil
}

// ListExecs implements brig.Store.
func (s *executions) ListExecs(ctx context.Context, sandbox brig.ID) ([]*brig.Execution, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []*brig.Execution
	for _, x := range s.execs[sandbox] {
		out = append(out, cloneExec(x))
	}
	slices.SortFunc(out, func(a, b *brig.Execution) int {
		return compareNewest(a.Started, b.Started, a.ExecID, b.ExecID)
	})
	left := contract.ListedBytes
	for _, x := range out {
		size := contract.ExecutionSize(x)
		if left -= size; left < 0 {
			left += size
			contract.Shorten(x)
		}
	}
	return out, nil
}

// PutRun implements brig.Store.
func (s *executions) PutRun(ctx context.Context, tenant string, o *brig.Outcome, events ...brig.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.runs[name{tenant, o.Sandbox}] = run{cloneOutcome(o), s.Now()}
	s.appendEvents(events)
	return nil
}

// EndRun implements brig.Store.
func (s *executions) EndRun(ctx context.Context, sandbox brig.ID, tenant string, o *brig.Outcome, events ...brig.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.remove(sandbox)
	s.runs[name{tenant, o.Sandbox}] = run{cloneOutcome(o), s.Now()}
	s.appendEvents(events)
	return nil
}

// GetRun implements brig.Store.
func (s *executions) GetRun(ctx context.Context, tenant, sandbox string) (*brig.Outcome, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	r, ok := s.runs[name{tenant, sandbox}]
	if !ok {
		return nil, contract.RunNotFoundError(sandbox)
	}
	return cloneOutcome(r.outcome), nil
}

// ListRuns implements brig.Store.
func (s *executions) ListRuns(ctx context.Context, tenant string, o brig.RunOptions) (*brig.RunPage, error) {
	limit, err := contract.Limit(brig.ListOptions{Limit: o.Limit})
	if err != nil {
		return nil, err
	}
	after, err := contract.ParseCursor(o.Cursor)
	if err != nil {
		return nil, err
	}
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var all []contract.Position
	for key, r := range s.runs {
		at := contract.Position{Created: r.put, ID: brig.ID(key.name)}
		if key.tenant == tenant && (after == nil || at.Compare(*after) < 0) {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b contract.Position) int { return b.Compare(a) })
	page, size := &brig.RunPage{}, 0
	for i, at := range all {
		if len(page.Runs) == limit || size >= contract.ListedBytes {
			page.Next = all[i-1].EncodeCursor()
			break
		}
		run := s.runs[name{tenant, string(at.ID)}].outcome
		if e := run.Error; e != nil {
			size += len(e.Name) + len(e.Message) + len(e.Traceback) + len(e.Hint)
		}
		if contract.IsWanted(run, o) {
			page.Runs = append(page.Runs, run.Summary())
		}
	}
	return page, nil
}

// PruneRuns implements brig.Store.
func (s *executions) PruneRuns(ctx context.Context, t time.Time) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for key, r := range s.runs {
		if r.put.Before(t) {
			delete(s.runs, key)
		}
	}
	return nil
}
