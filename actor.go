package brig

import (
	"context"
	"strings"
	"sync/atomic"
	"time"
)

// Role is the set of operations that an actor may call. A higher role includes
// the lower ones.
type Role int

// Roles in ascending order of privilege.
const (
	Nobody   Role = iota
	Viewer        // may read
	Member        // may run code
	Admin         // may change what members share, and manage the tenant's keys
	Operator      // may change what all tenants share, and manage tenants
)

// String names the role.
func (r Role) String() string {
	if r < Nobody || r > Operator {
		return "unknown"
	}
	return [...]string{"nobody", "viewer", "member", "admin", "operator"}[r]
}

// ParseRole returns the role with the given name.
func ParseRole(s string) (Role, error) {
	for r := Viewer; r <= Operator; r++ {
		if r.String() == s {
			return r, nil
		}
	}
	return Nobody, InvalidField("role", "no role %q", Clip(s, 80)).WithHint("use viewer, member, admin or operator")
}

// Actor is the authenticated caller and the tenant that it acts for.
type Actor struct {
	Name, Tenant string
	// Founded is the creation time of the tenant. It distinguishes the tenant
	// from an earlier one of the same name. The zero value means unknown.
	Founded time.Time `json:",omitzero"`
	Role    Role
	// Key is the ID of the key that authenticated the actor; empty if no key did.
	Key string `json:",omitempty"`
	// Grant is the ID of the grant that was presented in place of the key.
	Grant string `json:",omitempty"`
	// Person is the user that an identity provider authenticated; nil for the
	// holder of a key.
	Person *Person `json:",omitempty"`
	// Session is the ID of the session that was presented.
	Session string `json:",omitempty"`
	// Visitor marks an unauthenticated caller of a sandbox's port. An API handles the calls of
	// such a caller in the sandbox's tenant, but they must not count against the rate limit of
	// the tenant's own callers.
	Visitor bool `json:",omitempty"`
	// Scopes limit the actor to operations whose names begin with one of them;
	// empty allows all operations. Sandboxes limits it to the sandboxes with
	// these names.
	Scopes    []string `json:",omitempty"`
	Sandboxes []string `json:",omitempty"`
	// Expires is the expiry time of the credential; zero means never.
	Expires time.Time `json:",omitzero"`
}

// Holder identifies whose calls are counted together: a key with its grants and sessions, or a
// person with all sessions. Display names are unsuitable because they may change and need not be
// unique. Actors without a key or a person, such as the command line on the server's machine, are
// identified by name.
func (a Actor) Holder() string {
	switch {
	case a.Key != "":
		return "key\x00" + a.Key
	case a.Person != nil:
		return "person\x00" + a.Person.Issuer + "\x00" + a.Person.Subject
	}
	return "name\x00" + a.Name
}

type actorKey struct{}

// caller is the actor in a context.
type caller struct {
	Actor
	counted *atomic.Bool // whether a check has already counted the next call
}

// WithActor returns a context that carries a.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, caller{a, new(atomic.Bool)})
}

// ActorFrom returns the actor in ctx, or the zero Actor, which has no rights.
func ActorFrom(ctx context.Context) Actor {
	c, _ := ctx.Value(actorKey{}).(caller)
	return c.Actor
}

// SetCounted records whether the next call with ctx is already counted against
// the rate limit, and returns whether it was.
func SetCounted(ctx context.Context, counted bool) (before bool) {
	c, _ := ctx.Value(actorKey{}).(caller)
	return c.counted != nil && c.counted.Swap(counted)
}

// Gate decides whether the actor in ctx may call an operation on the named sandbox,
// before the server reads the rest of the request. It rejects exactly the calls
// that the operation itself would reject for the same actor. A check counts against
// the tenant's rate limit, so that requests with an invalid body count, too. The
// call that follows the check does not count again.
type Gate interface {
	Check(ctx context.Context, op Op, name string) error
}

// Authorize returns an error unless the actor's role and scopes allow the operation.
func (a Actor) Authorize(op Op) error {
	if a.Role == Nobody {
		return Errorf(Unauthenticated, "no credentials").
			WithHint("send the key as `Authorization: Bearer KEY`")
	}
	if a.Role < op.Role {
		return Errorf(PermissionDenied, "%s needs the role %s, this key has %s", op.Name, op.Role, a.Role).
			WithHint("use a key with that role")
	}
	if !InScope(a.Scopes, op.Name) {
		return Errorf(PermissionDenied, "%s is not in the scope of this key", op.Name).
			WithHint("its scopes are %s", Clip(strings.Join(a.Scopes, ", "), 80))
	}
	return nil
}
