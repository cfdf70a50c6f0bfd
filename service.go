package brig

import (
	"context"
	"io"
	"net"
	"time"
)

// Service is the complete interface of Brig, which the network APIs and the command
// line use. The engine implements it on this host, and the client package
// implements it through REST.
//
// Each object type has its own interface. A consumer depends only on the
// interfaces that it needs.
//
// A sandbox is addressed by name or by ID. The context carries the actor.
// Errors are *Error. Methods return NotFound for a sandbox of another tenant.
type Service interface {
	SandboxService
	LeaseService
	ExecService
	RunService
	CodeService
	GuestService
	ImageService
	SecretService
	ToolService
	WorkspaceService
	VolumeService
	WebhookService
	ProviderService
	InspectService
	KeyService
	SessionService
	TenantService
}

// SandboxService creates, finds and ends sandboxes.
type SandboxService interface {
	// Create starts a sandbox and returns when it is running. If the name is
	// taken, it returns AlreadyExists and has no effect.
	Create(ctx context.Context, spec Spec) (*Sandbox, error)
	// Fork creates copies of a sandbox, with its memory, programs and files, and returns
	// when all of them run. A running original continues to run, and a paused one stays
	// paused. After an error there are no copies. Fork returns FailedPrecondition in the
	// same cases as Pause.
	Fork(ctx context.Context, name string, o ForkSpec) ([]*Sandbox, error)
	Get(ctx context.Context, name string) (*Sandbox, error)
	List(ctx context.Context, o ListOptions) (*Page, error)
	// Usage measures a running sandbox. It neither renews the lease nor resumes a
	// paused sandbox, and returns Unimplemented if the provider measures nothing.
	Usage(ctx context.Context, name string) (*Usage, error)
	// Stop sends SIGTERM to the sandbox's programs, waits for grace, then kills
	// them. Kill kills them immediately. Both keep the record, and succeed if
	// the sandbox has already ended.
	Stop(ctx context.Context, name string, grace time.Duration) (*Sandbox, error)
	Kill(ctx context.Context, name string) (*Sandbox, error)
	// Remove kills a running sandbox and deletes the record.
	Remove(ctx context.Context, name string) error
}

// LeaseService changes a running sandbox.
type LeaseService interface {
	// Extend sets the end of the lease to ttl from now, within the tenant's
	// limits.
	Extend(ctx context.Context, name string, ttl time.Duration) (*Sandbox, error)
	// Pause saves the memory and the files of a running sandbox on disk and ends its
	// processes on the host; Resume continues it. Every call that uses a paused sandbox
	// resumes it. Both succeed if the sandbox is already in the requested state. Pause
	// returns FailedPrecondition, and the sandbox continues to run, while calls use the
	// sandbox or it runs programs that cannot be saved; see Spec.Pausable and
	// PauseOptions.
	Pause(ctx context.Context, name string, o PauseOptions) (*Sandbox, error)
	Resume(ctx context.Context, name string) (*Sandbox, error)
	// SetEgress replaces the egress rules of a running sandbox, and its bandwidth
	// unless that is SameBandwidth. When it returns, all connections that the new
	// rules do not allow are closed.
	SetEgress(ctx context.Context, name string, rules Egress) (*Sandbox, error)
	// Attest examines a sandbox again, from its host and from inside, and records
	// the enforcement of each area in Sandbox.Enforcement.
	Attest(ctx context.Context, name string) (*Sandbox, error)
}

// ExecService runs commands in a sandbox and reads their output.
type ExecService interface {
	// Exec runs a command in a running sandbox until it ends, and renews the lease.
	// If ctx ends first, the process is killed unless cmd.Survive is set.
	Exec(ctx context.Context, name string, cmd Command, sio IO) (*Result, error)
	// GetExec returns one execution of a sandbox, finished or not, by its ID.
	// ListExecs returns the recorded executions, newest first. Executions
	// persist across restarts of the server.
	GetExec(ctx context.Context, name, execID string) (*Execution, error)
	ListExecs(ctx context.Context, name string) ([]*Execution, error)
	// Logs returns the output of the sandbox's programs, even after its end. The
	// caller closes the reader. A log that is followed ends when ctx ends.
	Logs(ctx context.Context, name string, o LogOptions) (io.ReadCloser, error)
}

// RunService runs programs, each in an ephemeral sandbox.
type RunService interface {
	// Run runs a program in an ephemeral sandbox and destroys that sandbox, even
	// if the caller disconnects: when Run returns, no caller can reach the
	// sandbox. If sio has writers, they receive the output as it arrives; the
	// outcome always contains it.
	Run(ctx context.Context, p Program, sio IO) (*Outcome, error)
	// GetRun returns the outcome of a finished Run by its sandbox's name.
	GetRun(ctx context.Context, name string) (*Outcome, error)
	// Runs lists the outcomes that are still stored, the last ended run first. A page can be
	// shorter than its limit.
	Runs(ctx context.Context, o RunOptions) (*RunPage, error)
}

// CodeService runs code in interpreters that keep their variables.
type CodeService interface {
	// CreateContext starts an interpreter in a running sandbox. Contexts lists a
	// sandbox's interpreters, oldest first.
	CreateContext(ctx context.Context, name string, spec ContextSpec) (*CodeContext, error)
	Contexts(ctx context.Context, name string) ([]*CodeContext, error)
	// RunCode runs code in a context and renews the lease. Runs in one context
	// are queued and run in order of arrival. If on is not nil it receives events
	// as they happen; an error from it, or the end of ctx, interrupts the code.
	// The result always has all events.
	RunCode(ctx context.Context, name string, c Code, on func(CodeEvent) error) (*CodeResult, error)
	// InterruptContext interrupts running code like Ctrl-C. RestartContext ends
	// the interpreter, including running and queued code, and starts a new one.
	// RemoveContext ends it permanently.
	InterruptContext(ctx context.Context, name, id string) error
	RestartContext(ctx context.Context, name, id string) (*CodeContext, error)
	RemoveContext(ctx context.Context, name, id string) error
}

// GuestService accesses the inside of a running sandbox. Each use renews the
// lease.
type GuestService interface {
	Files(name string) Files
	Processes(name string) Processes
	// Dial connects to a TCP port that a program in the sandbox listens on,
	// including on its loopback interface. If no program listens on the port, Dial
	// returns ConnectionFailed. The caller closes the connection; CloseWrite
	// half-closes it.
	Dial(ctx context.Context, name string, port int) (net.Conn, error)
}

// ImageService manages the images that sandboxes start from.
type ImageService interface {
	Images(ctx context.Context) ([]*Image, error)
	GetImage(ctx context.Context, ref string) (*Image, error)
	// ImportImage reads a tar archive of a root file system, an OCI layout, or
	// the output of docker save.
	ImportImage(ctx context.Context, name string, r io.Reader, report func(Progress)) (*Image, error)
	BuildImage(ctx context.Context, b ImageBuild, report func(Progress)) (*Image, error)
	// PullImage fetches an image from a registry.
	PullImage(ctx context.Context, p ImagePull, report func(Progress)) (*Image, error)
	// TagImage makes name an alias of the image that ref refers to.
	TagImage(ctx context.Context, ref, name string) (*Image, error)
	// RemoveImage deletes an image. It returns FailedPrecondition while a sandbox
	// uses the image. If ref is an alias, only the alias is deleted.
	RemoveImage(ctx context.Context, ref string) error
}

// SecretService manages the tenant's secrets. No call returns a value.
type SecretService interface {
	// PutSecret creates a secret, or changes the fields of an existing one that c
	// sets. Sandboxes with the secret use a new value from the next command or
	// request on. It returns FailedPrecondition if c removes all hosts from a
	// secret without c.Reveal.
	PutSecret(ctx context.Context, c SecretChange) (*Secret, error)
	// Secrets lists the tenant's secrets by name.
	Secrets(ctx context.Context) ([]*Secret, error)
	RemoveSecret(ctx context.Context, name string) error
	// RotateKey generates a new encryption key, encrypts all secrets with it, and
	// returns their number.
	RotateKey(ctx context.Context) (int, error)
}

// InspectService reports on the server.
type InspectService interface {
	// Pool lists the classes of the warm pool.
	Pool(ctx context.Context) ([]PoolClass, error)
	// Templates lists, by name, the templates that Spec.Template can name.
	Templates(ctx context.Context) ([]Template, error)
	// Capabilities reports the enforcement level of each area on this server.
	Capabilities(ctx context.Context) (*Capabilities, error)
	// Alerts returns the active alerts, most severe first, and then recently
	// resolved ones.
	Alerts(ctx context.Context) ([]Alert, error)
	// Audit returns a page of the tenant's audit log, oldest first.
	Audit(ctx context.Context, q AuditQuery) (*AuditPage, error)
}

// KeyService manages API keys and scoped tokens.
type KeyService interface {
	// CreateKey creates a key with at most the caller's own permissions; an
	// operator may create one for any tenant.
	CreateKey(ctx context.Context, spec KeySpec) (*NewKey, error)
	// Keys lists a tenant's keys. The default is the caller's tenant.
	Keys(ctx context.Context, tenant string) ([]*Key, error)
	// RevokeKey revokes a key and ends every call that uses it.
	RevokeKey(ctx context.Context, id string) error
	// CreateGrant creates a token with a subset of the caller's permissions.
	CreateGrant(ctx context.Context, spec GrantSpec) (*NewGrant, error)
}

// SessionService manages sign-in sessions.
type SessionService interface {
	// CreateSession starts a session for a caller who authenticated with a key or
	// signed in.
	CreateSession(ctx context.Context) (*NewSession, error)
	// Sessions lists the caller's own sessions, or for an admin all sessions of a
	// tenant (default: the caller's).
	Sessions(ctx context.Context, tenant string) ([]*Session, error)
	// EndSession ends one of the sessions that Sessions lists. An empty ID means
	// the session of this call.
	EndSession(ctx context.Context, id string) error
}

// TenantService manages tenants and reports their usage.
type TenantService interface {
	// CreateTenant creates a tenant with its quota and limits.
	CreateTenant(ctx context.Context, t Tenant) (*Tenant, error)
	Tenants(ctx context.Context) ([]*Tenant, error)
	// GetTenant returns a tenant; an empty name means the caller's own. It
	// returns NotFound for other tenants unless the caller is an operator.
	GetTenant(ctx context.Context, name string) (*Tenant, error)
	// UpdateTenant replaces the quota and limits of the tenant. They apply to
	// operations that start afterwards.
	UpdateTenant(ctx context.Context, t Tenant) (*Tenant, error)
	// RemoveTenant deletes a tenant with its keys and usage. It returns
	// FailedPrecondition while the tenant has sandboxes.
	RemoveTenant(ctx context.Context, name string) error
	// TenantUsage returns the selected usage by day.
	TenantUsage(ctx context.Context, q UsageQuery) ([]UsageLine, error)
}
