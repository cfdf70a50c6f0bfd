package mem

import (
	"context"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// Put implements brig.Store.
func (s *executions) Put(ctx context.Context, r *brig.Record, events ...brig.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	old, exists := s.records[r.ID]
	switch {
	case r.Rev == 0 && exists:
		return contract.IDTakenError(r.ID)
	case r.Rev != 0 && (!exists || old.Rev != r.Rev):
		return contract.ConflictError(r)
	}
	key := name{r.Tenant, r.Spec.Name}
	if id, taken := s.names[key]; taken && id != r.ID {
		return contract.NameTakenError(r.Spec.Name)
	}
	if exists {
		delete(s.names, name{old.Tenant, old.Spec.Name})
	}
	kept := contract.CloneRecord(r)
	kept.Rev++
	s.records[r.ID], s.names[key] = kept, r.ID
	s.appendEvents(events)
	r.Rev = kept.Rev
	return nil
}

// Get implements brig.Store.
func (s *executions) Get(ctx context.Context, tenant, nameOrID string) (*brig.Record, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	// An ID identifies its sandbox permanently, so it takes precedence over an equal name.
	if r, ok := s.records[brig.ID(nameOrID)]; ok && r.Tenant == tenant {
		return contract.CloneRecord(r), nil
	}
	if id, ok := s.names[name{tenant, nameOrID}]; ok {
		return contract.CloneRecord(s.records[id]), nil
	}
	return nil, contract.SandboxNotFoundError(nameOrID)
}

// Owner implements brig.Store.
func (s *executions) Owner(ctx context.Context, id brig.ID) (string, error) {
	if err := s.lock(ctx); err != nil {
		return "", err
	}
	defer s.mu.Unlock()
	if r, ok := s.records[id]; ok {
		return r.Tenant, nil
	}
	return "", contract.SandboxNotFoundError(string(id))
}

// All implements brig.Store. It calls f without holding the lock, so f may use the store. It
// visits the records that exist when All starts.
func (s *executions) All(ctx context.Context, f func(*brig.Record) error) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	all := make([]*brig.Record, 0, len(s.records))
	for _, r := range s.records {
		all = append(all, contract.CloneRecord(r))
	}
	s.mu.Unlock()
	for _, r := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

// Delete implements brig.Store.
func (s *executions) Delete(ctx context.Context, id brig.ID, events ...brig.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.remove(id)
	s.appendEvents(events)
	return nil
}

// remove removes a sandbox. The caller must hold s.mu.
func (s *executions) remove(id brig.ID) {
	if r, ok := s.records[id]; ok {
		delete(s.names, name{r.Tenant, r.Spec.Name})
		delete(s.records, id)
		delete(s.execs, id)
	}
}
