package brig

import (
	"context"
	"time"
)

// Record is a Sandbox with the fields that only the engine and the store use.
type Record struct {
	Sandbox
	// PausedFor is the total duration of the sandbox's past pauses. It does not count
	// toward the maximum lifetime.
	PausedFor time.Duration `json:",omitempty"`
	// Former lists the sandboxes that this one was copied from, the first original
	// first, if it has secrets. Its programs may still use the placeholders of
	// these sandboxes.
	Former []ID `json:",omitzero"`
	// Given holds the sandbox's secrets, without their values, as they were at its
	// creation. A later change of a secret cannot widen the sandbox's access.
	Given []Secret `json:",omitzero"`
	// Booted is the time of the sandbox's last boot from a pause without memory. Such a pause
	// ends the sandbox's programs.
	Booted time.Time `json:",omitzero"`
	// Copied is set until a copy has reseeded its interpreters.
	Copied bool `json:",omitempty"`
	// SaveKey is the key of the save of a paused sandbox, if it was packed or is
	// being packed.
	SaveKey *SealedKey `json:",omitempty"`
	Handle  Handle     // opaque to all except its provider
	Rev     int64      // optimistic lock: 0 before the first Put, which sets it
}

// SealedKey is a key for data, encrypted with a key that the store does not have.
type SealedKey struct {
	Key    string // name of the encryption key
	Sealed []byte
}

// Event is the content of one audit log line. An operation that changes state
// writes two events: its intent when it is admitted, and its outcome.
type Event struct {
	At            time.Time
	Op            string
	Actor, Tenant string
	Sandbox       ID
	Phase         Phase
	Kind          Kind // kind of the error; empty on success
	// Detail holds further fields, never a secret's value; see the Detail
	// constants.
	Detail map[string]string
}

// Phase is the phase of an operation that an audit event records.
type Phase string

// The phases of an operation.
const (
	Intent  Phase = "intent"
	Finish  Phase = "outcome"
	Refused Phase = "refused" // rejected at admission
	// Observed is an event inside a sandbox that no call caused.
	Observed Phase = "observed"
)

// Store persists records. It implements no policy: no roles, quotas or
// defaults. A write is durable when the method returns. The caller owns the
// slices and pointers that a store returns, and a store does not retain those
// that the caller passes.
type Store interface {
	RecordStore
	ExecStore
	RunStore
	KeyStore
	SessionStore
	TenantStore
	UsageStore
	AuditStore
	SecretStore
	ToolSetupStore
	ToolVariableStore
	TemplateStore
	VolumeStore
	WebhookStore
	SettingStore

	// Trim deletes the oldest executions and outcomes of a tenant that exceed
	// keep: executions and their outputs per sandbox, outcomes and bytes per
	// tenant. Unfinished executions are kept. An empty sandbox means all
	// sandboxes of the tenant.
	Trim(ctx context.Context, tenant string, sandbox ID, keep Keep) error
	// Tidy returns unused space to the operating system. One call does a bounded
	// amount of work; the caller repeats it.
	Tidy(ctx context.Context) error
	// Soon returns the same store with a weaker guarantee: when a write returns, it
	// outlives this process, but it survives a power failure only after about 20
	// milliseconds. This suffices for records of sandboxes, because a power failure
	// also ends the sandboxes.
	Soon() Store

	Close() error
}

// RecordStore persists sandboxes.
type RecordStore interface {
	// Put writes a record and its events in one transaction and sets r.Rev. With
	// Rev 0 it inserts the record, and returns AlreadyExists if the (tenant,
	// name) or the ID is taken. Otherwise it returns FailedPrecondition if the
	// stored Rev differs.
	Put(ctx context.Context, r *Record, events ...Event) error
	// Get returns a tenant's record by name or by ID, or NotFound.
	Get(ctx context.Context, tenant, name string) (*Record, error)
	// Owner returns the tenant of a record by its ID alone, or NotFound. It is
	// for APIs that authenticate by a sandbox's own token instead of a tenant's
	// key.
	Owner(ctx context.Context, id ID) (tenant string, err error)
	// List returns a page of a tenant's records, newest first (by Created, then
	// ID), and the next cursor. A page of large records ends before the limit. List
	// returns InvalidArgument with the field "cursor" for an invalid cursor.
	List(ctx context.Context, tenant string, o ListOptions) ([]*Record, string, error)
	// All calls f for every record of every tenant until f returns an error.
	All(ctx context.Context, f func(*Record) error) error
	// Delete removes a record and its executions, and writes the events. It
	// succeeds if the record does not exist.
	Delete(ctx context.Context, id ID, events ...Event) error
}

// ExecStore persists the executions of sandboxes.
type ExecStore interface {
	// PutExec writes an execution and replaces an older one with the same ID. A running execution
	// does not replace an ended one. If Trim deleted the stored output, or the output's file is
	// lost, only the size of the output is stored.
	PutExec(ctx context.Context, x *Execution) error
	GetExec(ctx context.Context, sandbox ID, execID string) (*Execution, error)
	// ListExecs returns a sandbox's executions, newest first (by Started). The list has a bounded
	// size: executions that do not fit have no output and, if they have ended, no command unless
	// it is short. A caller that changes an execution of a list must therefore read it with
	// GetExec before writing it.
	ListExecs(ctx context.Context, sandbox ID) ([]*Execution, error)
}

// RunStore persists the outcomes of finished runs.
type RunStore interface {
	// PutRun writes an outcome under (tenant, o.Sandbox), with its events, and
	// replaces an older outcome.
	PutRun(ctx context.Context, tenant string, o *Outcome, events ...Event) error
	GetRun(ctx context.Context, tenant, name string) (*Outcome, error)
	// ListRuns returns a page of summaries of a tenant's outcomes, the last written first, then
	// by name. If the errors of the runs are long, even those of runs that are not selected, a
	// page ends before the limit and may be empty. ListRuns returns InvalidArgument with the
	// field "cursor" for an invalid cursor.
	ListRuns(ctx context.Context, tenant string, o RunOptions) (*RunPage, error)
	// PruneRuns deletes outcomes that were written before t.
	PruneRuns(ctx context.Context, t time.Time) error
	// EndRun deletes the sandbox and writes its outcome in one transaction.
	EndRun(ctx context.Context, sandbox ID, tenant string, o *Outcome, events ...Event) error
}

// KeyStore persists API keys.
type KeyStore interface {
	// PutKey adds a key or replaces the one with the same hash.
	PutKey(ctx context.Context, k Key) error
	// FindKey returns a key by its hash, or Unauthenticated. It does not check
	// whether the key is still valid.
	FindKey(ctx context.Context, hash [32]byte) (*Key, error)
	// GetKey returns a key by its ID, or NotFound.
	GetKey(ctx context.Context, id string) (*Key, error)
	// ListKeys returns a tenant's keys by Created, then ID.
	ListKeys(ctx context.Context, tenant string) ([]*Key, error)
	// DeleteKey deletes a key and its sessions. It succeeds if the key does not
	// exist.
	DeleteKey(ctx context.Context, id string) error
	// TouchKeys sets the times of the last use of keys, by ID.
	TouchKeys(ctx context.Context, used map[string]time.Time) error
}

// SessionStore persists sign-in sessions.
type SessionStore interface {
	PutSession(ctx context.Context, s Session) error
	// FindSession returns a session by its hash, or Unauthenticated.
	FindSession(ctx context.Context, hash [32]byte) (*Session, error)
	// Sessions returns a tenant's sessions (AllTenants: of every tenant) by
	// Created, then ID.
	Sessions(ctx context.Context, tenant string) ([]*Session, error)
	// DeleteSession deletes a tenant's session. It succeeds if the session does
	// not exist.
	DeleteSession(ctx context.Context, tenant, id string) error
	// TouchSessions sets the times of the last use of sessions, by ID.
	TouchSessions(ctx context.Context, used map[string]time.Time) error
	// PruneSessions deletes sessions that ended before now or were last used
	// before idle.
	PruneSessions(ctx context.Context, now, idle time.Time) error
}

// TenantStore persists tenants.
type TenantStore interface {
	// PutTenant adds a tenant or replaces the one with the same name.
	PutTenant(ctx context.Context, t *Tenant) error
	// GetTenant returns a tenant by name, or NotFound.
	GetTenant(ctx context.Context, name string) (*Tenant, error)
	// Tenants returns all tenants by name.
	Tenants(ctx context.Context) ([]*Tenant, error)
	// DeleteTenant deletes a tenant with its keys, sessions, secrets, tools, built
	// templates, outcomes, usage and routing. Its audit log persists.
	DeleteTenant(ctx context.Context, name string) error
}

// UsageStore persists usage by day.
type UsageStore interface {
	// AddUsage adds each line to the stored value, either for all lines or for
	// none.
	AddUsage(ctx context.Context, lines []UsageLine) error
	// Usage returns a tenant's lines (AllTenants: of every tenant) from one day
	// to another, inclusive, by tenant, day, label and value.
	Usage(ctx context.Context, tenant, from, to string) ([]UsageLine, error)
	// PruneUsage deletes the days before the given one.
	PruneUsage(ctx context.Context, before string) error
}

// AuditStore persists the audit log, one hash chain per tenant.
type AuditStore interface {
	// Append writes audit events.
	Append(ctx context.Context, events ...Event) error
	// Events returns the newest n events, newest first.
	Events(ctx context.Context, n int) ([]Event, error)
	// Audit returns up to q.Limit lines of a tenant's chain, oldest first.
	Audit(ctx context.Context, tenant string, q AuditQuery) ([]AuditLine, error)
	// AuditHeads returns the head of each tenant's chain.
	AuditHeads(ctx context.Context) ([]AuditHead, error)
	// PruneAudit deletes the beginning of each chain, up to its first line that is
	// not before t. A chain with more than limit lines is reduced to nine tenths of
	// limit. PruneAudit adds a line about the deletion (see DetailPruned). If limit
	// is 0, the number of lines is unlimited.
	PruneAudit(ctx context.Context, t time.Time, limit int64) error
}

// SecretStore persists encrypted secrets.
type SecretStore interface {
	// PutSecret writes a secret, with its events, if the stored version equals
	// previous (0: no such secret). Otherwise it returns FailedPrecondition.
	PutSecret(ctx context.Context, s *SealedSecret, previous int, events ...Event) error
	// GetSecret returns a secret, or NotFound.
	GetSecret(ctx context.Context, tenant, name string) (*SealedSecret, error)
	// Secrets returns a tenant's secrets by name, and AllSecrets those of every
	// tenant.
	Secrets(ctx context.Context, tenant string) ([]*SealedSecret, error)
	AllSecrets(ctx context.Context) ([]*SealedSecret, error)
	DeleteSecret(ctx context.Context, tenant, name string, events ...Event) error
}

// ToolSetupStore persists the tenants' tool setups.
type ToolSetupStore interface {
	// PutToolSetup writes a setup, with its events. If the tenant already has a
	// setup of that kind, PutToolSetup replaces it, and sets ID, Created and
	// CreatedBy of s to those of the old setup.
	PutToolSetup(ctx context.Context, s *ToolSetup, events ...Event) error
	// GetToolSetup returns a setup, or NotFound.
	GetToolSetup(ctx context.Context, tenant, id string) (*ToolSetup, error)
	// ToolSetups returns a tenant's setups by Created, then ID.
	ToolSetups(ctx context.Context, tenant string) ([]*ToolSetup, error)
	// DeleteToolSetup deletes a setup with its variables.
	DeleteToolSetup(ctx context.Context, tenant, id string, events ...Event) error
}

// ToolVariableStore persists the encrypted variables of tool setups.
type ToolVariableStore interface {
	// PutToolVariable writes a variable, with its events. It replaces the variable
	// with the same ID, or else the one with the same setup and key. In this case,
	// it sets ID, Created and CreatedBy of x to those of the old variable. It
	// returns NotFound if the setup does not exist, and AlreadyExists if another
	// variable of the setup has the key.
	PutToolVariable(ctx context.Context, x *SealedToolVariable, events ...Event) error
	// ChangeToolVariable is like PutToolVariable, but matches by ID only. It
	// returns NotFound if the variable was deleted in the meantime.
	ChangeToolVariable(ctx context.Context, x *SealedToolVariable, events ...Event) error
	// GetToolVariable returns a variable, or NotFound.
	GetToolVariable(ctx context.Context, tenant, id string) (*SealedToolVariable, error)
	// ToolVariables returns a setup's variables by Created, then ID, and
	// AllToolVariables those of every tenant.
	ToolVariables(ctx context.Context, tenant, setup string) ([]*SealedToolVariable, error)
	AllToolVariables(ctx context.Context) ([]*SealedToolVariable, error)
	DeleteToolVariable(ctx context.Context, tenant, id string, events ...Event) error
}

// SettingStore persists settings of the server.
type SettingStore interface {
	// PutSettings writes all settings and their events, or none. A nil value
	// deletes the setting.
	PutSettings(ctx context.Context, list []Setting, events ...Event) error
	// Settings returns all settings by name.
	Settings(ctx context.Context) ([]Setting, error)
}
