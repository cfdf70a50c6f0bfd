package brig

import (
	"context"
	"io"
	"net"
	"time"
)

// Service is the one front that every door serves and every client speaks.
// The engine implements it by deciding, the client by asking a server.
//
// Sandboxes are named by name or by id. The actor is in the context. Errors
// are *Error. A sandbox of another tenant is NotFound, as one that never was.
type Service interface {
	// Create starts a sandbox and returns when it is running. A taken name is
	// AlreadyExists, and then nothing has changed.
	Create(ctx context.Context, spec Spec) (*Sandbox, error)
	Get(ctx context.Context, name string) (*Sandbox, error)
	List(ctx context.Context, o ListOptions) (*Page, error)

	// Exec runs a command in a running sandbox until it ends. It renews the
	// lease. When ctx ends first the process is killed, unless the command
	// says Survive.
	Exec(ctx context.Context, name string, cmd Command, sio IO) (*Result, error)
	// GetExec finds one execution of a sandbox, finished or not, by its id;
	// ListExecs finds those that are remembered, newest first. Both outlive a
	// restart of the server.
	GetExec(ctx context.Context, name, execID string) (*Execution, error)
	ListExecs(ctx context.Context, name string) ([]*Execution, error)
	// Logs returns what the sandbox's programs wrote, also after its end. The
	// caller closes it.
	Logs(ctx context.Context, name string, o LogOptions) (io.ReadCloser, error)

	// Extend moves the end of the lease to ttl from now, within the bounds.
	Extend(ctx context.Context, name string, ttl time.Duration) (*Sandbox, error)
	// SetEgress changes where a running sandbox may connect to. Connections
	// that the new rules do not allow are closed when it returns.
	SetEgress(ctx context.Context, name string, rules Egress) (*Sandbox, error)
	// Stop asks the sandbox's programs to end (SIGTERM), gives them grace and
	// then kills. Kill kills at once. Both keep the record, and succeed on a
	// sandbox that has ended.
	Stop(ctx context.Context, name string, grace time.Duration) (*Sandbox, error)
	Kill(ctx context.Context, name string) (*Sandbox, error)
	// Remove kills the sandbox if it lives, and forgets it.
	Remove(ctx context.Context, name string) error

	// Run runs a program in a sandbox of its own, whatever happens, the
	// caller's going away included: when Run returns nobody can reach that
	// sandbox any more, and a moment later it is gone. Given writers receive
	// output as it happens; it is captured all the same.
	Run(ctx context.Context, p Program, sio IO) (*Outcome, error)
	// GetRun finds the outcome of a finished Run by its sandbox's name.
	GetRun(ctx context.Context, name string) (*Outcome, error)

	// CreateContext starts an interpreter in a running sandbox that keeps its
	// variables. Contexts lists those that there are, oldest first.
	CreateContext(ctx context.Context, name string, spec ContextSpec) (*CodeContext, error)
	Contexts(ctx context.Context, name string) ([]*CodeContext, error)
	// RunCode runs code in a context and renews the lease. Runs in one context
	// wait for each other, in the order in which they came. Given a function,
	// it is told what happens as it happens; an error of its own, or the end
	// of ctx, interrupts the code. What is produced is in the result as well.
	RunCode(ctx context.Context, name string, c Code, on func(CodeEvent) error) (*CodeResult, error)
	// InterruptContext interrupts the code that runs, if any does, as Ctrl-C
	// does. RestartContext ends the interpreter, with code that runs or waits,
	// and starts another. RemoveContext ends it for good.
	InterruptContext(ctx context.Context, name, id string) error
	RestartContext(ctx context.Context, name, id string) (*CodeContext, error)
	RemoveContext(ctx context.Context, name, id string) error

	// Files and Processes are those of a running sandbox. Using them renews
	// its lease.
	Files(name string) Files
	Processes(name string) Processes
	// Dial connects to a TCP port on which something in a sandbox listens, on
	// its loopback, too. Where nobody listens is ConnectionFailed. The caller
	// closes the connection; it may be half closed with CloseWrite.
	Dial(ctx context.Context, name string, port int) (net.Conn, error)

	// Pool says what waits to be used.
	Pool(ctx context.Context) ([]PoolShelf, error)

	// Templates lists those that Spec.Template can name, by name.
	Templates(ctx context.Context) ([]Template, error)

	Images(ctx context.Context) ([]*Image, error)
	GetImage(ctx context.Context, ref string) (*Image, error)
	// ImportImage reads a tar archive of a root file system, an OCI layout, or
	// what docker save makes.
	ImportImage(ctx context.Context, name string, r io.Reader, report func(Progress)) (*Image, error)
	BuildImage(ctx context.Context, b ImageBuild, report func(Progress)) (*Image, error)
	// PullImage fetches an image from a registry.
	PullImage(ctx context.Context, p ImagePull, report func(Progress)) (*Image, error)
	// RemoveImage refuses (FailedPrecondition) while a sandbox uses it.
	RemoveImage(ctx context.Context, ref string) error

	// PutSecret makes a secret of the tenant, or changes what c names of the one
	// that exists; sandboxes that have it get a new value with the next command
	// or request. It refuses (FailedPrecondition) to take all hosts from a secret,
	// unless c says Reveal. Secrets lists them by name. No call returns the value,
	// and RemoveSecret forgets it.
	PutSecret(ctx context.Context, c SecretChange) (*Secret, error)
	Secrets(ctx context.Context) ([]*Secret, error)
	RemoveSecret(ctx context.Context, name string) error
	// RotateKey makes a new key for all secrets and encrypts them under it.
	// How many, it says.
	RotateKey(ctx context.Context) (int, error)

	// Tools are functions that agents use.
	ToolService
	// Workspaces are directories that outlive sandboxes.
	WorkspaceService
	// Providers are where sandboxes are made.
	ProviderService
	// Capabilities says how far each area is enforced here. What was seen of it
	// in a sandbox is in Sandbox.Enforcement, which Attest finds out anew, by
	// looking at that very sandbox from its host and from inside.
	Capabilities(ctx context.Context) (*Capabilities, error)
	Attest(ctx context.Context, name string) (*Sandbox, error)

	// Alerts says what is wrong with the service, the worst first, and what was
	// of late.
	Alerts(ctx context.Context) ([]Alert, error)

	// Audit returns a page of the tenant's audit log, oldest first.
	Audit(ctx context.Context, q AuditQuery) (*AuditPage, error)

	// CreateKey makes a key of no more than the caller's own rights; an
	// operator may make one for any tenant. Keys lists those of a tenant, the
	// caller's by default. A key that is revoked stops what goes on with it.
	CreateKey(ctx context.Context, spec KeySpec) (*NewKey, error)
	Keys(ctx context.Context, tenant string) ([]*Key, error)
	RevokeKey(ctx context.Context, id string) error
	// CreateGrant makes a token of a part of the caller's rights.
	CreateGrant(ctx context.Context, spec GrantSpec) (*NewGrant, error)

	// CreateSession begins a session of the caller's own, who shows a key or
	// has signed in. Sessions lists the caller's own, or to an admin all of a
	// tenant's (the caller's by default). EndSession ends one of those; an empty
	// id is the one by which the caller is here.
	CreateSession(ctx context.Context) (*NewSession, error)
	Sessions(ctx context.Context, tenant string) ([]*Session, error)
	EndSession(ctx context.Context, id string) error

	// CreateTenant makes a tenant of that name, quota and ceilings.
	CreateTenant(ctx context.Context, t Tenant) (*Tenant, error)
	Tenants(ctx context.Context) ([]*Tenant, error)
	// GetTenant finds a tenant, the caller's own for an empty name. Others are
	// NotFound to all but operators.
	GetTenant(ctx context.Context, name string) (*Tenant, error)
	// UpdateTenant gives the tenant of that name another quota and other
	// ceilings. They hold for what begins from then on.
	UpdateTenant(ctx context.Context, t Tenant) (*Tenant, error)
	// RemoveTenant forgets a tenant, its keys and its usage. It refuses
	// (FailedPrecondition) while the tenant has sandboxes.
	RemoveTenant(ctx context.Context, name string) error
	// TenantUsage says what was used, by day.
	TenantUsage(ctx context.Context, q UsageQuery) ([]UsageLine, error)
}
