package brig

import (
	"context"
	"time"
)

// Role orders what an actor may do.
type Role int

// The roles, weakest first.
const (
	Nobody   Role = iota
	Viewer        // may look
	Member        // may run code
	Admin         // may change what the tenant's members share, and manage its keys
	Operator      // may change what all tenants share, and manage tenants
)

// String names the role.
func (r Role) String() string {
	if r < Nobody || r > Operator {
		return "unknown"
	}
	return [...]string{"nobody", "viewer", "member", "admin", "operator"}[r]
}

// ParseRole is the role of a name, of those that somebody can have.
func ParseRole(s string) (Role, error) {
	for r := Viewer; r <= Operator; r++ {
		if r.String() == s {
			return r, nil
		}
	}
	return Nobody, InvalidField("role", "no role %q", Clip(s, 80)).WithHint("use viewer, member, admin or operator")
}

// Actor is who is calling, on behalf of which tenant.
type Actor struct {
	Name, Tenant string
	Role         Role
	// Key is the id of the key that proved it, empty for none.
	Key string `json:",omitempty"`
	// Grant is the id of the grant that it shows instead of the key itself.
	Grant string `json:",omitempty"`
	// Person is who proved it by an identity provider, nil for a key's holder.
	Person *Person `json:",omitempty"`
	// Session is the id of the session by which it was shown.
	Session string `json:",omitempty"`
	// Scopes narrow what it may do to operations whose names begin with one of
	// them; empty is no narrowing. Sandboxes do to some sandboxes, by name.
	Scopes    []string `json:",omitempty"`
	Sandboxes []string `json:",omitempty"`
	// Expires is when it ends, zero for never.
	Expires time.Time `json:",omitzero"`
}

type actorKey struct{}

// WithActor returns a context that carries a.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorFrom returns the actor in ctx, or Nobody.
func ActorFrom(ctx context.Context) Actor {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a
}
