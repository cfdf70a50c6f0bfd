package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// These are the statements for tenants and their usage.
const (
	putTenant = `
		insert into tenants (name, doc) values ($1, $2)
		on conflict (name) do update set doc = excluded.doc`
	deleteTenant        = `delete from tenants where name = $1`
	deleteTenantKeys    = `delete from keys where tenant = $1`
	deleteTenantRuns    = `delete from runs where tenant = $1`
	deleteTenantSecrets = `delete from secrets where tenant = $1`
	deleteTenantUsage   = `delete from usage where tenant = $1`
	addUsage            = `
		insert into usage (tenant, day, label, value, executions, execution_ns, cpu_ns, gib_seconds, egress, cost)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		on conflict (tenant, day, label, value) do update set
			executions = executions + excluded.executions, execution_ns = execution_ns + excluded.execution_ns,
			cpu_ns = cpu_ns + excluded.cpu_ns, gib_seconds = gib_seconds + excluded.gib_seconds,
			egress = egress + excluded.egress, cost = cost + excluded.cost`
	pruneUsage = `delete from usage where day < $1`
)

// PutTenant implements brig.Store.
func (s *tenants) PutTenant(ctx context.Context, t *brig.Tenant) error {
	kept := *t
	kept.Created = t.Created.UTC()
	doc, err := json.Marshal(kept)
	if err != nil {
		return wrap(err, "encode tenant %s", t.Name)
	}
	err = s.write(ctx, nil, func(x *tx) error {
		_, err := x.exec(putTenant, t.Name, string(doc))
		return err
	})
	return wrap(err, "put tenant %s", t.Name)
}

// GetTenant implements brig.Store.
func (s *tenants) GetTenant(ctx context.Context, name string) (*brig.Tenant, error) {
	t, err := scanTenant(s.readers.QueryRowContext(ctx, `select doc from tenants where name = $1`, name))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.TenantNotFoundError(name)
	}
	return t, wrap(err, "get tenant %s", name)
}

// Tenants implements brig.Store.
func (s *tenants) Tenants(ctx context.Context) ([]*brig.Tenant, error) {
	out, err := query(ctx, s.readers, scanTenant, `select doc from tenants order by name`)
	return out, wrap(err, "list tenants")
}

func scanTenant(row scanner) (*brig.Tenant, error) {
	var doc string
	if err := row.Scan(&doc); err != nil {
		return nil, err
	}
	t := &brig.Tenant{}
	return t, json.Unmarshal([]byte(doc), t)
}

// DeleteTenant implements brig.Store.
func (s *tenants) DeleteTenant(ctx context.Context, name string) error {
	err := s.write(ctx, nil, func(t *tx) error {
		for _, q := range []string{
			deleteTenant, deleteTenantKeys, deleteTenantSessions, deleteTenantRuns, deleteTenantSecrets,
			deleteTenantTools, deleteTenantTemplates, deleteTenantVolumes, deleteTenantWebhooks, deleteTenantUsage,
		} {
			if _, err := t.exec(q, name); err != nil {
				return err
			}
		}
		_, err := t.exec(deleteSetting, brig.SettingRouting(name))
		return err
	})
	return wrap(err, "delete tenant %s", name)
}

// AddUsage implements brig.Store.
func (s *tenants) AddUsage(ctx context.Context, lines []brig.UsageLine) error {
	err := s.write(ctx, nil, func(t *tx) error {
		for _, l := range lines {
			_, err := t.exec(addUsage, l.Tenant, l.Day, l.Label, l.Value,
				l.Executions, int64(l.ExecutionTime), int64(l.CPUTime), l.Memory, l.Egress, l.Cost)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return wrap(err, "add usage")
}

// Usage implements brig.Store.
func (s *tenants) Usage(ctx context.Context, tenant, from, to string) ([]brig.UsageLine, error) {
	rows, err := s.readers.QueryContext(ctx, `
		select tenant, day, label, value, executions, execution_ns, cpu_ns, gib_seconds, egress, cost from usage
		where (tenant = $1 or $1 = '*') and day between $2 and $3 order by tenant, day, label, value`, tenant, from, to)
	if err != nil {
		return nil, wrap(err, "read usage")
	}
	defer rows.Close()
	var out []brig.UsageLine
	for rows.Next() {
		var l brig.UsageLine
		var execution, cpu int64
		if err := rows.Scan(&l.Tenant, &l.Day, &l.Label, &l.Value, &l.Executions, &execution, &cpu, &l.Memory, &l.Egress, &l.Cost); err != nil {
			return nil, wrap(err, "read usage")
		}
		l.ExecutionTime, l.CPUTime = time.Duration(execution), time.Duration(cpu)
		out = append(out, l)
	}
	return out, wrap(rows.Err(), "read usage")
}

// PruneUsage implements brig.Store.
func (s *tenants) PruneUsage(ctx context.Context, before string) error {
	err := s.write(ctx, nil, func(t *tx) error {
		_, err := t.exec(pruneUsage, before)
		return err
	})
	return wrap(err, "prune usage")
}
