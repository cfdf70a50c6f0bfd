package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// These are the statements for tools.
const (
	selectToolSetup = `select doc, data from tool_setups where tenant = $1 and kind = $2`
	putToolSetup    = `
		insert into tool_setups (id, tenant, kind, created_ns, doc, data) values ($1, $2, $3, $4, $5, $6)
		on conflict (id) do update set doc = excluded.doc, data = excluded.data`
	deleteToolSetup   = `delete from tool_setups where tenant = $1 and id = $2`
	deleteTenantTools = `delete from tool_setups where tenant = $1`
	selectSetupExists = `select exists (select 1 from tool_setups where tenant = $1 and id = $2)`
	// Selects the variable with that ID, or otherwise the one with that key.
	selectToolVariable = `
		select doc, data from tool_variables where tenant = $1 and (id = $2 or setup = $3 and key = $4)
		order by id = $2 desc limit 1`
	selectKeyTaken  = `select exists (select 1 from tool_variables where setup = $1 and key = $2 and id <> $3)`
	putToolVariable = `
		insert into tool_variables (id, setup, tenant, key, created_ns, doc, data) values ($1, $2, $3, $4, $5, $6, $7)
		on conflict (id) do update set key = excluded.key, doc = excluded.doc, data = excluded.data`
	deleteToolVariable = `delete from tool_variables where tenant = $1 and id = $2`
)

// PutToolSetup implements brig.Store.
func (s *tooling) PutToolSetup(ctx context.Context, setup *brig.ToolSetup, events ...brig.Event) error {
	err := s.write(ctx, events, func(t *tx) error {
		old, err := scanDoc[brig.ToolSetup](t.row(selectToolSetup, setup.Tenant, string(setup.Kind)))
		switch {
		case err == nil:
			setup.ID, setup.Created, setup.CreatedBy = old.ID, old.Created, old.CreatedBy
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		kept := *setup
		kept.Created, kept.Updated = setup.Created.UTC(), setup.Updated.UTC()
		doc, data, err := encode(&kept)
		if err == nil {
			_, err = t.exec(putToolSetup, setup.ID, setup.Tenant, string(setup.Kind), toNanos(setup.Created), doc, data)
		}
		return err
	})
	return wrap(err, "put setup of tools %s", setup.ID)
}

// GetToolSetup implements brig.Store.
func (s *tooling) GetToolSetup(ctx context.Context, tenant, id string) (*brig.ToolSetup, error) {
	out, err := scanDoc[brig.ToolSetup](s.readers.QueryRowContext(ctx, `select doc, data from tool_setups where tenant = $1 and id = $2`, tenant, id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.ToolSetupNotFoundError(id)
	}
	return out, wrap(err, "get setup of tools %s", id)
}

// ToolSetups implements brig.Store.
func (s *tooling) ToolSetups(ctx context.Context, tenant string) ([]*brig.ToolSetup, error) {
	out, err := query(ctx, s.readers, scanDoc[brig.ToolSetup], `
		select doc, data from tool_setups where tenant = $1 order by created_ns, id`, tenant)
	return out, wrap(err, "list setups of tools")
}

// DeleteToolSetup implements brig.Store.
func (s *tooling) DeleteToolSetup(ctx context.Context, tenant, id string, events ...brig.Event) error {
	err := s.write(ctx, events, func(t *tx) error {
		n, err := t.exec(deleteToolSetup, tenant, id)
		if err == nil && n == 0 {
			return contract.ToolSetupNotFoundError(id)
		}
		return err
	})
	return wrap(err, "delete setup of tools %s", id)
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
	err := s.write(ctx, events, func(t *tx) error {
		there := false
		if err := t.row(selectSetupExists, x.Tenant, x.Setup).Scan(&there); err != nil {
			return err
		}
		if !there {
			return contract.ToolSetupNotFoundError(x.Setup)
		}
		old, err := scanDoc[brig.SealedToolVariable](t.row(selectToolVariable, x.Tenant, x.ID, x.Setup, x.Key))
		switch {
		case mustExist && (errors.Is(err, sql.ErrNoRows) || err == nil && old.ID != x.ID):
			return contract.ToolVariableNotFoundError(x.ID)
		case err == nil:
			x.ID, x.Created, x.CreatedBy = old.ID, old.Created, old.CreatedBy
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		taken := false
		if err := t.row(selectKeyTaken, x.Setup, x.Key, x.ID).Scan(&taken); err != nil {
			return err
		}
		if taken {
			return contract.ToolKeyTakenError(x.Key)
		}
		kept := *x
		kept.Created, kept.Updated = x.Created.UTC(), x.Updated.UTC()
		doc, data, err := encode(&kept)
		if err == nil {
			_, err = t.exec(putToolVariable, x.ID, x.Setup, x.Tenant, x.Key, toNanos(x.Created), doc, data)
		}
		return err
	})
	return wrap(err, "put variable of tools %s", x.Key)
}

// GetToolVariable implements brig.Store.
func (s *tooling) GetToolVariable(ctx context.Context, tenant, id string) (*brig.SealedToolVariable, error) {
	out, err := scanDoc[brig.SealedToolVariable](s.readers.QueryRowContext(ctx, `select doc, data from tool_variables where tenant = $1 and id = $2`, tenant, id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.ToolVariableNotFoundError(id)
	}
	return out, wrap(err, "get variable of tools %s", id)
}

// ToolVariables implements brig.Store.
func (s *tooling) ToolVariables(ctx context.Context, tenant, setup string) ([]*brig.SealedToolVariable, error) {
	out, err := query(ctx, s.readers, scanDoc[brig.SealedToolVariable], `
		select doc, data from tool_variables where tenant = $1 and setup = $2 order by created_ns, id`, tenant, setup)
	return out, wrap(err, "list variables of tools")
}

// AllToolVariables implements brig.Store.
func (s *tooling) AllToolVariables(ctx context.Context) ([]*brig.SealedToolVariable, error) {
	out, err := query(ctx, s.readers, scanDoc[brig.SealedToolVariable], `select doc, data from tool_variables order by created_ns, id`)
	return out, wrap(err, "list variables of tools")
}

// DeleteToolVariable implements brig.Store.
func (s *tooling) DeleteToolVariable(ctx context.Context, tenant, id string, events ...brig.Event) error {
	err := s.write(ctx, events, func(t *tx) error {
		n, err := t.exec(deleteToolVariable, tenant, id)
		if err == nil && n == 0 {
			return contract.ToolVariableNotFoundError(id)
		}
		return err
	})
	return wrap(err, "delete variable of tools %s", id)
}

// scanDoc decodes a row that was written with encode.
func scanDoc[T any](row scanner) (*T, error) {
	var doc string
	var data []byte
	if err := row.Scan(&doc, &data); err != nil {
		return nil, err
	}
	return decode[T](doc, data)
}
