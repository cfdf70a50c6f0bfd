package mem

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// PutToolSetup implements brig.Store.
func (s *tooling) PutToolSetup(ctx context.Context, setup *brig.ToolSetup, events ...brig.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, old := range s.setups {
		if old.Tenant == setup.Tenant && old.Kind == setup.Kind {
			setup.ID, setup.Created, setup.CreatedBy = old.ID, old.Created, old.CreatedBy
		}
	}
	s.setups[setup.ID] = cloneSetup(setup)
	s.appendEvents(events)
	return nil
}

// GetToolSetup implements brig.Store.
func (s *tooling) GetToolSetup(ctx context.Context, tenant, id string) (*brig.ToolSetup, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if x := s.setups[id]; x != nil && x.Tenant == tenant {
		return cloneSetup(x), nil
	}
	return nil, contract.ToolSetupNotFoundError(id)
}

// ToolSetups implements brig.Store.
func (s *tooling) ToolSetups(ctx context.Context, tenant string) ([]*brig.ToolSetup, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []*brig.ToolSetup
	for _, x := range s.setups {
		if x.Tenant == tenant {
			out = append(out, cloneSetup(x))
		}
	}
	slices.SortFunc(out, func(a, b *brig.ToolSetup) int { return compareOldest(a.Created, b.Created, a.ID, b.ID) })
	return out, nil
}

// DeleteToolSetup implements brig.Store.
func (s *tooling) DeleteToolSetup(ctx context.Context, tenant, id string, events ...brig.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if x := s.setups[id]; x == nil || x.Tenant != tenant {
		return contract.ToolSetupNotFoundError(id)
	}
	delete(s.setups, id)
	maps.DeleteFunc(s.variables, func(_ string, x *brig.SealedToolVariable) bool { return x.Setup == id })
	s.appendEvents(events)
	return nil
}

// PutToolVariable implements brig.Store.
func (s *tooling) PutToolVariable(ctx context.Context, x *brig.SealedToolVariable, events ...brig.Event) error {
	return s.writeVariable(ctx, x, false, events)
}

// ChangeToolVariable implements brig.Store.
func (s *tooling) ChangeToolVariable(ctx context.Context, x *brig.SealedToolVariable, events ...brig.Event) error {
	return s.writeVariable(ctx, x, true, events)
}

// writeVariable writes a variable. If mustExist is set, the variable must already exist.
func (s *tooling) writeVariable(ctx context.Context, x *brig.SealedToolVariable, mustExist bool, events []brig.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if setup := s.setups[x.Setup]; setup == nil || setup.Tenant != x.Tenant {
		return contract.ToolSetupNotFoundError(x.Setup)
	}
	var same *brig.SealedToolVariable // the variable with the same key
	for _, old := range s.variables {
		if old.Setup == x.Setup && old.Key == x.Key {
			same = old
		}
	}
	old := s.variables[x.ID]
	if old == nil {
		if mustExist {
			return contract.ToolVariableNotFoundError(x.ID)
		}
		old = same
	} else if same != nil && same.ID != x.ID {
		return contract.ToolKeyTakenError(x.Key)
	}
	if old != nil {
		x.ID, x.Created, x.CreatedBy = old.ID, old.Created, old.CreatedBy
	}
	s.variables[x.ID] = cloneVariable(x)
	s.appendEvents(events)
	return nil
}

// GetToolVariable implements brig.Store.
func (s *tooling) GetToolVariable(ctx context.Context, tenant, id string) (*brig.SealedToolVariable, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if x := s.variables[id]; x != nil && x.Tenant == tenant {
		return cloneVariable(x), nil
	}
	return nil, contract.ToolVariableNotFoundError(id)
}

// ToolVariables implements brig.Store.
func (s *tooling) ToolVariables(ctx context.Context, tenant, setup string) ([]*brig.SealedToolVariable, error) {
	all, err := s.AllToolVariables(ctx)
	var out []*brig.SealedToolVariable
	for _, x := range all {
		if x.Tenant == tenant && x.Setup == setup {
			out = append(out, x)
		}
	}
	return out, err
}

// AllToolVariables implements brig.Store.
func (s *tooling) AllToolVariables(ctx context.Context) ([]*brig.SealedToolVariable, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []*brig.SealedToolVariable
	for _, x := range s.variables {
		out = append(out, cloneVariable(x))
	}
	slices.SortFunc(out, func(a, b *brig.SealedToolVariable) int { return compareOldest(a.Created, b.Created, a.ID, b.ID) })
	return out, nil
}

// DeleteToolVariable implements brig.Store.
func (s *tooling) DeleteToolVariable(ctx context.Context, tenant, id string, events ...brig.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if x := s.variables[id]; x == nil || x.Tenant != tenant {
		return contract.ToolVariableNotFoundError(id)
	}
	delete(s.variables, id)
	s.appendEvents(events)
	return nil
}

// compareOldest orders by time, then by ID.
func compareOldest(at, bt time.Time, a, b string) int {
	return cmp.Or(at.Compare(bt), cmp.Compare(a, b))
}

func cloneSetup(x *brig.ToolSetup) *brig.ToolSetup {
	c := *x
	c.Config = bytes.Clone(x.Config)
	c.Created, c.Updated = x.Created.UTC(), x.Updated.UTC()
	return &c
}

func cloneVariable(x *brig.SealedToolVariable) *brig.SealedToolVariable {
	c := *x
	c.Value = "" // only Sealed is stored
	c.Sealed = bytes.Clone(x.Sealed)
	c.Created, c.Updated = x.Created.UTC(), x.Updated.UTC()
	return &c
}
