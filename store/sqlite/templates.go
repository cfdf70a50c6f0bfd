package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// These are the statements for templates and their builds.
const (
	putTemplate = `
		insert into templates (tenant, id, name, created_ns, rev, doc, data) values ($1, $2, $3, $4, $5, $6, $7)
		on conflict (tenant, id) do update set
			name = excluded.name, created_ns = excluded.created_ns, rev = excluded.rev, doc = excluded.doc, data = excluded.data`
	selectTemplateRev       = `select rev from templates where tenant = $1 and id = $2`
	selectTemplateNameTaken = `select exists (select 1 from templates where tenant = $1 and name = $2 and id <> $3)`
	deleteTemplate          = `delete from templates where tenant = $1 and id = $2`
	deleteTenantTemplates   = `delete from templates where tenant = $1`
	putBuild                = `
		insert into template_builds (tenant, template, id, status, created_ns, rev, doc, data, log)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		on conflict (tenant, template, id) do update set
			status = excluded.status, created_ns = excluded.created_ns, rev = excluded.rev,
			doc = excluded.doc, data = excluded.data, log = excluded.log`
	selectBuildRev = `select rev from template_builds where tenant = $1 and template = $2 and id = $3`
	deleteBuild    = `delete from template_builds where tenant = $1 and template = $2 and id = $3`
)

// selectTemplate is a frequent read, because it precedes each creation of a sandbox from a
// template. An ID identifies its template permanently, so it takes precedence over an equal name.
const selectTemplate = `
	select doc, data from templates where tenant = $1 and (id = $2 or name = $2)
	order by id = $2 desc limit 1`

// PutTemplate implements brig.Store.
func (s *templates) PutTemplate(ctx context.Context, x *brig.BuiltTemplate, builds ...*brig.TemplateBuild) error {
	kept := *x
	kept.Rev++
	doc, data, err := encode(&kept)
	if err != nil {
		return wrap(err, "encode template %s", x.ID)
	}
	err = s.write(ctx, nil, func(t *tx) error {
		rev, err := t.rev(selectTemplateRev, x.Tenant, x.ID)
		switch {
		case err != nil:
			return err
		case x.Rev == 0 && rev != 0:
			return contract.TemplateIDTaken(x.ID)
		case x.Rev != rev:
			return contract.TemplateConflict(x)
		}
		taken := false
		if err := t.row(selectTemplateNameTaken, x.Tenant, x.Name, x.ID).Scan(&taken); err != nil {
			return err
		}
		if taken {
			return contract.TemplateNameTaken(x.Name)
		}
		if _, err = t.exec(putTemplate, x.Tenant, x.ID, x.Name, toNanos(x.Created), kept.Rev, doc, data); err != nil {
			return err
		}
		for _, b := range builds {
			if err := t.putBuild(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return wrap(err, "put template %s", x.ID)
	}
	x.Rev = kept.Rev
	for _, b := range builds {
		b.Rev++
	}
	return nil
}

// rev returns the stored revision that a statement selects, or 0 if there is no row.
func (t *tx) rev(query string, args ...any) (rev int64, err error) {
	err = t.row(query, args...).Scan(&rev)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return rev, err
}

// GetTemplate implements brig.Store.
func (s *templates) GetTemplate(ctx context.Context, tenant, ref string) (*brig.BuiltTemplate, error) {
	x, err := scan[brig.BuiltTemplate](s.readStmts[selectTemplate].QueryRowContext(ctx, tenant, ref))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.NoTemplate(ref)
	}
	return x, wrap(err, "get template %s", ref)
}

// BuiltTemplates implements brig.Store.
func (s *templates) BuiltTemplates(ctx context.Context, tenant string) ([]*brig.BuiltTemplate, error) {
	out, err := query(ctx, s.readers, scan[brig.BuiltTemplate], `
		select doc, data from templates where tenant = $1 or $1 = '' order by created_ns, id, tenant`, tenant)
	return out, wrap(err, "list templates")
}

// DeleteTemplate implements brig.Store. A foreign key deletes the builds of the template.
func (s *templates) DeleteTemplate(ctx context.Context, tenant, id string) error {
	err := s.write(ctx, nil, func(t *tx) error {
		n, err := t.exec(deleteTemplate, tenant, id)
		if err == nil && n == 0 {
			return contract.NoTemplate(id)
		}
		return err
	})
	return wrap(err, "delete template %s", id)
}

// PutBuild implements brig.Store.
func (s *templates) PutBuild(ctx context.Context, b *brig.TemplateBuild) error {
	if err := s.write(ctx, nil, func(t *tx) error { return t.putBuild(b) }); err != nil {
		return wrap(err, "put build %s", b.ID)
	}
	b.Rev++
	return nil
}

// putBuild writes a build with its next revision.
func (t *tx) putBuild(b *brig.TemplateBuild) error {
	kept := *b
	kept.Rev, kept.Log = b.Rev+1, nil // the log has its own column
	doc, data, err := encode(&kept)
	if err != nil {
		return wrap(err, "encode build %s", b.ID)
	}
	log, _, err := encode(&b.Log)
	if err != nil {
		return wrap(err, "encode log of build %s", b.ID)
	}
	template, err := t.rev(selectTemplateRev, b.Tenant, b.Template)
	if err != nil {
		return err
	}
	if template == 0 {
		return contract.NoTemplate(b.Template)
	}
	rev, err := t.rev(selectBuildRev, b.Tenant, b.Template, b.ID)
	switch {
	case err != nil:
		return err
	case b.Rev == 0 && rev != 0:
		return contract.BuildIDTaken(b.ID)
	case b.Rev != rev:
		return contract.BuildConflict(b)
	}
	_, err = t.exec(putBuild, b.Tenant, b.Template, b.ID, string(b.Status), toNanos(b.Created), kept.Rev, doc, data, log)
	return err
}

// GetBuild implements brig.Store.
func (s *templates) GetBuild(ctx context.Context, tenant, template, id string) (*brig.TemplateBuild, error) {
	b, err := scanBuild(s.readers.QueryRowContext(ctx, `
		select doc, data, log from template_builds where tenant = $1 and template = $2 and id = $3`, tenant, template, id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.NoBuild(id)
	}
	return b, wrap(err, "get build %s", id)
}

func scanBuild(row scanner) (*brig.TemplateBuild, error) {
	var doc, text string
	var data []byte
	if err := row.Scan(&doc, &data, &text); err != nil {
		return nil, err
	}
	b, err := decode[brig.TemplateBuild](doc, data)
	if err != nil {
		return nil, err
	}
	log, err := decode[[]brig.BuildLine](text, nil)
	if err != nil {
		return nil, err
	}
	b.Log = *log
	return b, nil
}

// Builds implements brig.Store.
func (s *templates) Builds(ctx context.Context, f brig.BuildFilter) ([]*brig.TemplateBuild, error) {
	q, args := buildsQuery(f)
	out, err := query(ctx, s.readers, scan[brig.TemplateBuild], q, args...)
	return out, wrap(err, "list builds")
}

// buildsQuery returns the query of Builds. SQLite can use an index only for conditions that are
// in the text of the query, so the text depends on the filter.
func buildsQuery(f brig.BuildFilter) (q string, args []any) {
	q = `select doc, data from template_builds where true`
	if f.Tenant != "" {
		q, args = q+` and tenant = ?`, append(args, f.Tenant)
	}
	if f.Template != "" {
		q, args = q+` and template = ?`, append(args, f.Template)
	}
	if f.Unfinished {
		// This must be the condition of the index template_builds_unfinished.
		q += ` and status in ('waiting', 'building')`
	}
	if f.ID != "" {
		q, args = q+` and id = ?`, append(args, f.ID)
	}
	if f.Discarded {
		// This must be the condition of the index template_builds_discarded.
		q += ` and json_array_length(doc, '$.Discarded') > 0`
	}
	if f.Newest {
		q += ` and id = (select n.id from template_builds n where n.tenant = template_builds.tenant and n.template = template_builds.template
			order by n.created_ns desc, n.id desc limit 1)`
	}
	return q + ` order by created_ns desc, id desc`, args
}

// DeleteBuild implements brig.Store.
func (s *templates) DeleteBuild(ctx context.Context, tenant, template, id string) error {
	err := s.write(ctx, nil, func(t *tx) error {
		n, err := t.exec(deleteBuild, tenant, template, id)
		if err == nil && n == 0 {
			return contract.NoBuild(id)
		}
		return err
	})
	return wrap(err, "delete build %s", id)
}
