package mem

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// PutSession implements brig.Store.
func (s *tenancy) PutSession(ctx context.Context, x brig.Session) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.sessions[x.Hash] = cloneSession(&x)
	return nil
}

// FindSession implements brig.Store.
func (s *tenancy) FindSession(ctx context.Context, hash [32]byte) (*brig.Session, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	x, ok := s.sessions[hash]
	if !ok {
		return nil, contract.SessionNotFoundError()
	}
	return cloneSession(x), nil
}

// Sessions implements brig.Store.
func (s *tenancy) Sessions(ctx context.Context, tenant string) ([]*brig.Session, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []*brig.Session
	for _, x := range s.sessions {
		if tenant == brig.AllTenants || x.Actor.Tenant == tenant {
			out = append(out, cloneSession(x))
		}
	}
	slices.SortFunc(out, func(a, b *brig.Session) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

// DeleteSession implements brig.Store.
func (s *tenancy) DeleteSession(ctx context.Context, tenant, id string) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	maps.DeleteFunc(s.sessions, func(_ [32]byte, x *brig.Session) bool { return x.ID == id && x.Actor.Tenant == tenant })
	return nil
}

// TouchSessions implements brig.Store.
func (s *tenancy) TouchSessions(ctx context.Context, used map[string]time.Time) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, x := range s.sessions {
		if at, ok := used[x.ID]; ok {
			x.Used = at.UTC()
		}
	}
	return nil
}

// PruneSessions implements brig.Store.
func (s *tenancy) PruneSessions(ctx context.Context, now, idle time.Time) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	maps.DeleteFunc(s.sessions, func(_ [32]byte, x *brig.Session) bool { return x.Expires.Before(now) || x.Used.Before(idle) })
	return nil
}

func cloneSession(x *brig.Session) *brig.Session {
	out := *x
	out.Actor = cloneKey(&brig.Key{Actor: x.Actor}).Actor
	out.Created, out.Used, out.Expires = x.Created.UTC(), x.Used.UTC(), x.Expires.UTC()
	return &out
}

func clonePerson(p *brig.Person) *brig.Person {
	if p == nil {
		return nil
	}
	out := *p
	out.Claims = maps.Clone(p.Claims)
	for k, v := range out.Claims {
		out.Claims[k] = slices.Clone(v)
	}
	return &out
}
