package workspace

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
)

// Sweep removes the unreferenced objects of a tenant: versions of removed
// workspaces, and contents that no version references. It waits for exclusive
// access and returns the number of removed objects. If a version cannot be
// read, Sweep removes no contents, because the version may reference them.
func (s *Store) Sweep(ctx context.Context, tenant string) (int, error) {
	release, err := s.o.Hold(ctx, tenantKey(tenant), true)
	if err != nil {
		return 0, err
	}
	defer release()
	l := s.ledger(tenant)
	defer l.forget() // the next load also counts writes of other processes
	live := map[string]bool{}
	names := tenantKey(tenant) + "/names/"
	var list []string
	if err := s.o.List(ctx, names, func(key string) error {
		list = append(list, strings.TrimPrefix(key, names))
		return nil
	}); err != nil {
		return 0, err
	}
	for _, name := range list {
		n, err := s.find(ctx, tenant, name)
		if err != nil {
			return 0, err
		}
		live[n.ID] = true
	}
	n, err := s.sweep(ctx, tenant, live)
	if err == nil {
		l.resetAfterSweep()
	}
	abandoned, lost := s.o.RemoveAbandoned(ctx, tenantKey(tenant)+"/")
	return n + abandoned, errors.Join(err, lost)
}

// Tenants lists the tenants that have objects, including tenants that were
// removed but not swept.
func (s *Store) Tenants(ctx context.Context) ([]string, error) {
	found := map[string]bool{}
	err := s.o.List(ctx, "t/", func(key string) error {
		key, _, _ = strings.Cut(strings.TrimPrefix(key, "t/"), "/")
		if encoded, ok := strings.CutPrefix(key, "="); ok {
			b, err := hex.DecodeString(encoded)
			if key = string(b); err != nil {
				key = "" // not a key of ours
			}
		}
		if key != "" {
			found[key] = true
		}
		return nil
	})
	return slices.Sorted(maps.Keys(found)), err
}

// sweep removes the unreferenced objects, given the IDs of the existing
// workspaces.
func (s *Store) sweep(ctx context.Context, tenant string, live map[string]bool) (int, error) {
	needed := map[string]bool{}
	var unreferenced []string
	var unreadable error
	versions := tenantKey(tenant) + "/versions/"
	err := s.o.List(ctx, versions, func(key string) error {
		if id, _, _ := strings.Cut(strings.TrimPrefix(key, versions), "/"); !live[id] {
			unreferenced = append(unreferenced, key)
		} else if unreadable == nil {
			unreadable = s.markReferenced(ctx, tenant, key, needed)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if err = unreadable; err == nil {
		err = s.o.List(ctx, tenantKey(tenant)+"/blobs/", func(key string) error {
			if !needed[path.Base(key)] {
				unreferenced = append(unreferenced, key)
			}
			return nil
		})
	}
	for _, key := range unreferenced {
		err = errors.Join(err, s.o.Delete(ctx, key))
	}
	return len(unreferenced), err
}

// markReferenced marks the objects that a version references.
func (s *Store) markReferenced(ctx context.Context, tenant, key string, needed map[string]bool) error {
	var r record
	if err := s.readJSON(ctx, key, &r); err != nil {
		return err
	}
	if r.Manifest == "" || !r.isValid() {
		return errors.New("not the record of a version: " + key)
	}
	for _, digest := range r.manifests() {
		if needed[digest] {
			continue
		}
		needed[digest] = true
		if _, err := s.scan(ctx, tenant, digest, func(e *entry) error {
			needed[e.digest] = true
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
