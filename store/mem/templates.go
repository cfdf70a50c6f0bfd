package mem

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// buildKey identifies a build of a template.
type buildKey struct{ tenant, template, id string }

// PutTemplate implements brig.Store.
func (s *templates) PutTemplate(ctx context.Context, t *brig.BuiltTemplate, builds ...*brig.TemplateBuild) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	key := name{t.Tenant, t.ID}
	old, exists := s.built[key]
	switch {
	case t.Rev == 0 && exists:
		return contract.TemplateIDTaken(t.ID)
	case t.Rev != 0 && (!exists || old.Rev != t.Rev):
		return contract.TemplateConflict(t)
	}
	if other := s.templateNamed(t.Tenant, t.Name); other != nil && other.ID != t.ID {
		return contract.TemplateNameTaken(t.Name)
	}
	for _, b := range builds {
		if err := s.checkBuild(b); err != nil {
			return err
		}
	}
	kept := cloneTemplate(t)
	kept.Rev++
	s.built[key] = kept
	t.Rev = kept.Rev
	for _, b := range builds {
		s.setBuild(b)
	}
	return nil
}

// templateNamed returns the stored template with a name, or nil. The caller must hold s.mu.
func (s *templates) templateNamed(tenant, name string) *brig.BuiltTemplate {
	for _, t := range s.built {
		if t.Tenant == tenant && t.Name == name {
			return t
		}
	}
	return nil
}

// GetTemplate implements brig.Store.
func (s *templates) GetTemplate(ctx context.Context, tenant, ref string) (*brig.BuiltTemplate, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	// An ID identifies its template permanently, so it takes precedence over an equal name.
	if t, ok := s.built[name{tenant, ref}]; ok {
		return cloneTemplate(t), nil
	}
	if t := s.templateNamed(tenant, ref); t != nil {
		return cloneTemplate(t), nil
	}
	return nil, contract.NoTemplate(ref)
}

// BuiltTemplates implements brig.Store.
func (s *templates) BuiltTemplates(ctx context.Context, tenant string) ([]*brig.BuiltTemplate, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []*brig.BuiltTemplate
	for _, t := range s.built {
		if tenant == "" || t.Tenant == tenant {
			out = append(out, cloneTemplate(t))
		}
	}
	slices.SortFunc(out, func(a, b *brig.BuiltTemplate) int {
		return cmp.Or(compareOldest(a.Created, b.Created, a.ID, b.ID), cmp.Compare(a.Tenant, b.Tenant))
	})
	return out, nil
}

// DeleteTemplate implements brig.Store.
func (s *templates) DeleteTemplate(ctx context.Context, tenant, id string) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	key := name{tenant, id}
	if _, ok := s.built[key]; !ok {
		return contract.NoTemplate(id)
	}
	delete(s.built, key)
	maps.DeleteFunc(s.builds, func(k buildKey, _ *brig.TemplateBuild) bool { return k.tenant == tenant && k.template == id })
	return nil
}

// PutBuild implements brig.Store.
func (s *templates) PutBuild(ctx context.Context, b *brig.TemplateBuild) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if _, ok := s.built[name{b.Tenant, b.Template}]; !ok {
		return contract.NoTemplate(b.Template)
	}
	if err := s.checkBuild(b); err != nil {
		return err
	}
	s.setBuild(b)
	return nil
}

// checkBuild checks that a build can be written. The caller must hold s.mu.
func (s *templates) checkBuild(b *brig.TemplateBuild) error {
	old, exists := s.builds[buildKey{b.Tenant, b.Template, b.ID}]
	switch {
	case b.Rev == 0 && exists:
		return contract.BuildIDTaken(b.ID)
	case b.Rev != 0 && (!exists || old.Rev != b.Rev):
		return contract.BuildConflict(b)
	}
	return nil
}

// setBuild writes a build. The caller must hold s.mu.
func (s *templates) setBuild(b *brig.TemplateBuild) {
	kept := cloneBuild(b)
	kept.Rev++
	s.builds[buildKey{b.Tenant, b.Template, b.ID}] = kept
	b.Rev = kept.Rev
}

// GetBuild implements brig.Store.
func (s *templates) GetBuild(ctx context.Context, tenant, template, id string) (*brig.TemplateBuild, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if b, ok := s.builds[buildKey{tenant, template, id}]; ok {
		return cloneBuild(b), nil
	}
	return nil, contract.NoBuild(id)
}

// Builds implements brig.Store.
func (s *templates) Builds(ctx context.Context, f brig.BuildFilter) ([]*brig.TemplateBuild, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []*brig.TemplateBuild
	newest := map[name]*brig.TemplateBuild{}
	if f.Newest {
		for _, b := range s.builds {
			key := name{b.Tenant, b.Template}
			if n := newest[key]; n == nil || compareNewest(b.Created, n.Created, b.ID, n.ID) < 0 {
				newest[key] = b
			}
		}
	}
	for k, b := range s.builds {
		if (f.Tenant == "" || k.tenant == f.Tenant) && (f.Template == "" || k.template == f.Template) && (f.ID == "" || k.id == f.ID) &&
			(!f.Unfinished || b.Status.Unfinished()) && (!f.Discarded || len(b.Discarded) > 0) && (!f.Newest || newest[name{k.tenant, k.template}] == b) {
			c := cloneBuild(b)
			c.Log = nil
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *brig.TemplateBuild) int { return compareNewest(a.Created, b.Created, a.ID, b.ID) })
	return out, nil
}

// DeleteBuild implements brig.Store.
func (s *templates) DeleteBuild(ctx context.Context, tenant, template, id string) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	key := buildKey{tenant, template, id}
	if _, ok := s.builds[key]; !ok {
		return contract.NoBuild(id)
	}
	delete(s.builds, key)
	return nil
}

func cloneTemplate(t *brig.BuiltTemplate) *brig.BuiltTemplate {
	c := *t
	c.Created, c.Updated, c.LastUsed, c.Removed = t.Created.UTC(), t.Updated.UTC(), t.LastUsed.UTC(), t.Removed.UTC()
	c.Tags = maps.Clone(t.Tags)
	for name, tag := range c.Tags {
		tag.Assigned = tag.Assigned.UTC()
		c.Tags[name] = tag
	}
	return &c
}

func cloneBuild(b *brig.TemplateBuild) *brig.TemplateBuild {
	c := *b
	c.Created, c.Started, c.Finished = b.Created.UTC(), b.Started.UTC(), b.Finished.UTC()
	c.Env, c.Tags, c.Discarded, c.Failure, c.Log = maps.Clone(b.Env), slices.Clone(b.Tags), slices.Clone(b.Discarded), clonePointer(b.Failure), slices.Clone(b.Log)
	for i, line := range c.Log {
		c.Log[i].Time = line.Time.UTC()
	}
	return &c
}
