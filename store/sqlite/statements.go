package sqlite

import (
	"context"
	"database/sql"
)

// These are the statements of writes.
const (
	insertSandbox = `
		insert into sandboxes (id, tenant, name, state, digest, created_ns, expires_ns, rev, doc, data)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
	updateSandbox = `
		update sandboxes set tenant = $2, name = $3, state = $4, digest = $5, created_ns = $6, expires_ns = $7,
			rev = $8, doc = $9, data = $10
		where id = $1 and rev = $11`
	selectRev       = `select rev from sandboxes where id = $1`
	selectNameTaken = `select exists (select 1 from sandboxes where tenant = $1 and name = $2 and id <> $3)`
	deleteLabels    = `delete from labels where sandbox = $1`
	insertLabel     = `insert into labels (sandbox, key, value) values ($1, $2, $3)`
	deleteSandbox   = `delete from sandboxes where id = $1`
	putExecution    = `
		insert into executions (sandbox, id, started_ns, doc, data, file, size, done, tenant)
		select $1, $2, $3, $4, $5, $6, $7, $8, tenant from sandboxes where id = $1
		on conflict (sandbox, id) do update set
			started_ns = excluded.started_ns, doc = excluded.doc, data = excluded.data,
			file = excluded.file, size = excluded.size, done = excluded.done, lost = 0
		where executions.done = 0 or excluded.done = 1`
	selectExecExists = `select exists (select 1 from executions where sandbox = $1 and id = $2)`
	putRun           = `
		insert into runs (tenant, name, put_ns, doc, data, file, size) values ($1, $2, $3, $4, $5, $6, $7)
		on conflict (tenant, name) do update set
			put_ns = excluded.put_ns, doc = excluded.doc, data = excluded.data,
			file = excluded.file, size = excluded.size, lost = 0`
	deleteRuns = `
		delete from runs where (tenant, name) in (
			select runs.tenant, runs.name from kept_bytes cross join runs
			where runs.tenant = kept_bytes.tenant and runs.put_ns < $1)`
	insertEvent = `
		insert into events (at, op, actor, tenant, sandbox, phase, kind, n, at_ns, detail, prev, hash)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
	selectChain = `select n, hash from chains where tenant = $1`
	putChain    = `
		insert into chains (tenant, n, at, hash) values ($1, $2, $3, $4)
		on conflict (tenant) do update set n = excluded.n, at = excluded.at, hash = excluded.hash`
	selectChains = `select tenant, n, pruned from chains order by tenant`
	selectKept   = `select min(n) from events where tenant = $1 and n > 0 and at_ns >= $2`
	selectHash   = `select hash from events where tenant = $1 and n = $2`
	deleteEvents = `delete from events where tenant = $1 and n <= $2`
	setPruned    = `update chains set pruned = $2 where tenant = $1`

	selectVersion = `select version from secrets where tenant = $1 and name = $2`
	putSecret     = `
		insert into secrets (tenant, name, version, doc, key, sealed) values ($1, $2, $3, $4, $5, $6)
		on conflict (tenant, name) do update set
			version = excluded.version, doc = excluded.doc, key = excluded.key, sealed = excluded.sealed`
	deleteSecret = `delete from secrets where tenant = $1 and name = $2`
)

// statements lists all statements of writes that prepare must prepare.
var statements = []string{
	insertSandbox, updateSandbox, selectRev, selectNameTaken, deleteLabels, insertLabel, deleteSandbox, putExecution, selectExecExists, putRun, deleteRuns, insertEvent,
	deleteExecutions, markOutputsLost, deleteOldRuns, selectKeptBytes, selectOldest, selectOldestRuns, deleteExecution, deleteRun, deleteUnreferenced,
	selectChain, putChain, selectChains, selectKept, selectHash, deleteEvents, setPruned,
	selectVersion, putSecret, deleteSecret, putSetting, deleteSetting,
	selectToolSetup, putToolSetup, deleteToolSetup, deleteTenantTools, selectSetupExists, selectToolVariable, selectKeyTaken, putToolVariable, deleteToolVariable,
	putTemplate, selectTemplateRev, selectTemplateNameTaken, deleteTemplate, deleteTenantTemplates, putBuild, selectBuildRev, deleteBuild,
	insertVolume, selectVolumeIDTaken, selectVolumeNameTaken, selectVolumeByID, markVolumeRemoved, deleteVolume, deleteTenantVolumes,
	putWebhook, selectWebhookRev, deleteWebhook, deleteTenantWebhooks, putDelivery, trimDeliveries,
	putSession, deleteSession, deleteKeySessions, deleteTenantSessions, touchSession, pruneSessions,
	putKey, deleteKey, touchKey, putTenant, deleteTenant, deleteTenantKeys, deleteTenantRuns, deleteTenantSecrets, deleteTenantUsage, addUsage, pruneUsage,
}

// These are the statements of frequent reads. They include reads for the E2B API, which
// receives a sandbox's ID before it has determined the tenant.
const (
	selectSandbox = `
		select doc, data from sandboxes where tenant = $1 and (id = $2 or name = $2)
		order by id = $2 desc limit 1`
	selectKey     = `select hash, used_ns, doc from keys where hash = $1`
	selectOwner   = `select tenant from sandboxes where id = $1`
	selectKeyByID = `select hash, used_ns, doc from keys where id = $1`
)

var reads = []string{selectSandbox, selectKey, selectOwner, selectKeyByID, selectCounts, selectTemplate}

// prepare prepares every statement once. Closing the database closes the prepared statements.
func prepare(ctx context.Context, db *sql.DB, queries []string) (map[string]*sql.Stmt, error) {
	out := map[string]*sql.Stmt{}
	for _, q := range queries {
		s, err := db.PrepareContext(ctx, q) //nolint:sqlclosecheck // see above
		if err != nil {
			return nil, err
		}
		out[q] = s
	}
	return out, nil
}
