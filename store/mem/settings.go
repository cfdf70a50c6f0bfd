package mem

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/brig-run/brig"
)

// PutSettings implements brig.Store.
func (s *tenancy) PutSettings(ctx context.Context, list []brig.Setting, events ...brig.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, x := range list {
		if x.Value == nil {
			delete(s.settings, x.Name)
			continue
		}
		x.Value, x.Updated = bytes.Clone(x.Value), x.Updated.UTC()
		s.settings[x.Name] = x
	}
	s.appendEvents(events)
	return nil
}

// Settings implements brig.Store.
func (s *tenancy) Settings(ctx context.Context) ([]brig.Setting, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []brig.Setting
	for _, name := range slices.Sorted(maps.Keys(s.settings)) {
		x := s.settings[name]
		x.Value = bytes.Clone(x.Value)
		out = append(out, x)
	}
	return out, nil
}
