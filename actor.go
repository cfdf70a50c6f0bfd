package brig

import "context"

// Role orders what an actor may do.
type Role int

// The roles, weakest first.
const (
	Nobody Role = iota
	Viewer      // may look
	Member      // may run code
	Admin       // may change what the tenant's members share
)

// String names the role.
func (r Role) String() string {
	if r < Nobody || r > Admin {
		return "unknown"
	}
	return [...]string{"nobody", "viewer", "member", "admin"}[r]
}

// Actor is who is calling, on behalf of which tenant.
type Actor struct {
	Name, Tenant string
	Role         Role
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

// Key proves who an actor is. Only its hash is stored.
type Key struct {
	Hash  [32]byte // SHA-256 of the key
	Actor Actor
}
