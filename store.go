package brig

import (
	"context"
	"time"
)

// Record is a Sandbox and what only the engine and the store know of it.
type Record struct {
	Sandbox
	Handle Handle // opaque to everyone but its provider
	Rev    int64  // optimistic lock: 0 before the first Put, then what Put set
}

// Event is what a line of the audit log tells. A changing operation writes
// two: its intent when it was let in, and its outcome.
type Event struct {
	At            time.Time
	Op            string
	Actor, Tenant string
	Sandbox       ID
	Phase         Phase
	Kind          Kind // of the error; empty on success
	// Detail is what else is worth knowing, never a secret's value; see the
	// Detail constants.
	Detail map[string]string
}

// Phase tells the two events of a changing operation apart.
type Phase string

// The phases of an operation.
const (
	Intent  Phase = "intent"
	Finish  Phase = "outcome"
	Refused Phase = "refused" // the gate said no
	// Observed is nobody's doing: what a sandbox did by itself.
	Observed Phase = "observed"
)

// Store keeps records. It decides nothing: no roles, no quotas, no defaults.
// Everything is durable when a method returns. Slices and pointers that it
// returns belong to the caller, and it keeps none that it was given.
type Store interface {
	// Put writes a record and its events in one transaction and sets r.Rev.
	// With Rev 0 it inserts: a (tenant, name) or id that is taken is
	// AlreadyExists. Otherwise a Rev that has moved is FailedPrecondition.
	Put(ctx context.Context, r *Record, events ...Event) error
	// Get finds a record by name or by id within a tenant; NotFound.
	Get(ctx context.Context, tenant, name string) (*Record, error)
	// Owner returns the tenant of a record, by its id alone; NotFound. It is for
	// doors to which a sandbox's own token opens, not a tenant's key.
	Owner(ctx context.Context, id ID) (tenant string, err error)
	// List returns a page of a tenant's records, newest first (by Created,
	// then ID), and the next cursor. A cursor it did not make is
	// InvalidArgument with the field "cursor".
	List(ctx context.Context, tenant string, o ListOptions) ([]*Record, string, error)
	// All calls f for every record of every tenant until f fails.
	All(ctx context.Context, f func(*Record) error) error
	// Delete removes a record and its executions, with its events; no error
	// when there is none.
	Delete(ctx context.Context, id ID, events ...Event) error

	// PutExec writes an execution, replacing one of the same id.
	PutExec(ctx context.Context, x *Execution) error
	GetExec(ctx context.Context, sandbox ID, execID string) (*Execution, error)
	// ListExecs returns a sandbox's executions, newest first (by Started).
	ListExecs(ctx context.Context, sandbox ID) ([]*Execution, error)

	// PutRun remembers an outcome under (tenant, o.Sandbox), with its events,
	// replacing an older one; GetRun finds it; PruneRuns forgets those that
	// were put before t.
	PutRun(ctx context.Context, tenant string, o *Outcome, events ...Event) error
	GetRun(ctx context.Context, tenant, name string) (*Outcome, error)
	PruneRuns(ctx context.Context, t time.Time) error
	// EndRun is Delete of the sandbox and PutRun of its outcome in one
	// transaction.
	EndRun(ctx context.Context, sandbox ID, tenant string, o *Outcome, events ...Event) error

	// PutKey adds a key or replaces the one of the same hash; FindKey finds it
	// by that, or Unauthenticated. Whether it is still good is not the store's
	// to say.
	PutKey(ctx context.Context, k Key) error
	FindKey(ctx context.Context, hash [32]byte) (*Key, error)
	// GetKey finds a key by its id; NotFound. ListKeys lists those of a tenant
	// by Created, then ID. DeleteKey forgets one; no error when there is none.
	GetKey(ctx context.Context, id string) (*Key, error)
	ListKeys(ctx context.Context, tenant string) ([]*Key, error)
	DeleteKey(ctx context.Context, id string) error
	// TouchKeys sets when keys, by their ids, were used.
	TouchKeys(ctx context.Context, used map[string]time.Time) error

	// PutSession adds a session; FindSession finds it by its hash, or
	// Unauthenticated. Sessions lists those of a tenant (AllTenants for every
	// one) by Created, then ID. DeleteSession forgets one of a tenant's; no
	// error when there is none. TouchSessions sets when some, by their ids,
	// were used. PruneSessions forgets those that ended before now, or were
	// last used before idle. DeleteKey forgets a key's sessions with it.
	PutSession(ctx context.Context, s Session) error
	FindSession(ctx context.Context, hash [32]byte) (*Session, error)
	Sessions(ctx context.Context, tenant string) ([]*Session, error)
	DeleteSession(ctx context.Context, tenant, id string) error
	TouchSessions(ctx context.Context, used map[string]time.Time) error
	PruneSessions(ctx context.Context, now, idle time.Time) error

	// PutTenant adds a tenant or replaces the one of that name. GetTenant
	// finds it; NotFound. Tenants lists all by name. DeleteTenant forgets one
	// with its keys, sessions, secrets, tools, outcomes and usage; its audit log stays.
	PutTenant(ctx context.Context, t *Tenant) error
	GetTenant(ctx context.Context, name string) (*Tenant, error)
	Tenants(ctx context.Context) ([]*Tenant, error)
	DeleteTenant(ctx context.Context, name string) error

	// AddUsage adds to what there is of each line, all or nothing. Usage
	// returns the lines of a tenant (AllTenants for every one) from a day to
	// another, both included, by tenant, day, label and value. PruneUsage
	// forgets the days before one.
	AddUsage(ctx context.Context, lines []UsageLine) error
	Usage(ctx context.Context, tenant, from, to string) ([]UsageLine, error)
	PruneUsage(ctx context.Context, before string) error

	// Append writes audit events; Events returns the newest n, newest first.
	Append(ctx context.Context, events ...Event) error
	Events(ctx context.Context, n int) ([]Event, error)
	// Audit returns up to q.Limit lines of a tenant's chain, oldest first,
	// and AuditHeads where each tenant's chain stands. PruneAudit removes the
	// beginning of each chain, up to its first line that is not before t, and
	// writes a line about that (see DetailPruned).
	Audit(ctx context.Context, tenant string, q AuditQuery) ([]AuditLine, error)
	AuditHeads(ctx context.Context) ([]AuditHead, error)
	PruneAudit(ctx context.Context, t time.Time) error

	// PutSecret writes a secret, with its events, if the tenant has it in the
	// version was (0 is not at all), and is FailedPrecondition otherwise.
	// GetSecret is NotFound for one that is not there; Secrets lists a
	// tenant's by name, AllSecrets everybody's; DeleteSecret removes one.
	PutSecret(ctx context.Context, s *SealedSecret, was int, events ...Event) error
	GetSecret(ctx context.Context, tenant, name string) (*SealedSecret, error)
	Secrets(ctx context.Context, tenant string) ([]*SealedSecret, error)
	AllSecrets(ctx context.Context) ([]*SealedSecret, error)
	DeleteSecret(ctx context.Context, tenant, name string, events ...Event) error

	// PutToolSetup writes a setup, with its events, in place of the one of its
	// tenant and kind if there is one, of which s then has ID, Created and
	// CreatedBy. GetToolSetup is NotFound for one that the tenant has not;
	// ToolSetups lists a tenant's by Created, then ID. DeleteToolSetup removes
	// one with its variables.
	PutToolSetup(ctx context.Context, s *ToolSetup, events ...Event) error
	GetToolSetup(ctx context.Context, tenant, id string) (*ToolSetup, error)
	ToolSetups(ctx context.Context, tenant string) ([]*ToolSetup, error)
	DeleteToolSetup(ctx context.Context, tenant, id string, events ...Event) error
	// PutToolVariable writes a variable, with its events: in place of the one of
	// its id, and else of the one of its setup and key, of which x then has ID,
	// Created and CreatedBy. A setup that the tenant has not is NotFound; a key
	// that another one of the setup has is AlreadyExists. ChangeToolVariable does
	// it in place of the one of its id alone, and is NotFound if that was removed
	// meanwhile. GetToolVariable is
	// NotFound for one that the tenant has not; ToolVariables lists a setup's by
	// Created, then ID, AllToolVariables everybody's; DeleteToolVariable
	// removes one.
	PutToolVariable(ctx context.Context, x *SealedToolVariable, events ...Event) error
	ChangeToolVariable(ctx context.Context, x *SealedToolVariable, events ...Event) error
	GetToolVariable(ctx context.Context, tenant, id string) (*SealedToolVariable, error)
	ToolVariables(ctx context.Context, tenant, setup string) ([]*SealedToolVariable, error)
	AllToolVariables(ctx context.Context) ([]*SealedToolVariable, error)
	DeleteToolVariable(ctx context.Context, tenant, id string, events ...Event) error

	// PutSettings writes settings with their events, all or nothing; one of
	// which the value is nil is removed. Settings lists all by name.
	PutSettings(ctx context.Context, list []Setting, events ...Event) error
	Settings(ctx context.Context) ([]Setting, error)

	// Soon returns the same store with another promise: what is written
	// through it outlives this process at once, and a power cut some 20
	// milliseconds later. It is for what is about a sandbox that a power cut
	// ends as well.
	Soon() Store

	Close() error
}
