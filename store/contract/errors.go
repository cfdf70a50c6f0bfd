// Package contract holds what every store answers alike: the errors of
// brig.Store's contract, the size of a page and the cursor between two. It
// keeps nothing itself.
package contract

import "github.com/brig-run/brig"

// The errors of the contract. What a caller reads must not depend on which
// store is behind it, nor tell what other tenants have.

// clip is as much of a name that a caller made up as is repeated.
func clip(name string) string { return brig.Clip(name, 80) }

// NoSandbox: there is none of that name or id in the tenant.
func NoSandbox(name string) error {
	return brig.Errorf(brig.NotFound, "no sandbox %q", clip(name)).
		WithHint("list sandboxes to see what exists")
}

// NoExec: the sandbox has no execution of that id.
func NoExec(id string) error {
	return brig.Errorf(brig.NotFound, "no execution %q", clip(id)).
		WithHint("list the sandbox's executions to see what is remembered")
}

// NoRun: no outcome is remembered under that name.
func NoRun(name string) error {
	return brig.Errorf(brig.NotFound, "no run %q", clip(name)).
		WithHint("outcomes are remembered for a while only; run the program again")
}

// NameTaken: the tenant has a sandbox of that name.
func NameTaken(name string) error {
	return brig.Errorf(brig.AlreadyExists, "a sandbox named %q exists", name).
		WithHint("choose another name, or remove that sandbox first")
}

// IDTaken: somebody has a sandbox of that id.
func IDTaken(id brig.ID) error {
	return brig.Errorf(brig.AlreadyExists, "the sandbox id %q is taken", id).
		WithHint("an id is never used again; make a new one")
}

// Moved: the record is not what the caller last saw.
func Moved(r *brig.Record) error {
	return brig.Errorf(brig.FailedPrecondition, "sandbox %q was changed by someone else", r.Spec.Name).
		WithHint("look at the sandbox again and repeat the request if it still makes sense")
}

func badLimit(limit int) error {
	return brig.InvalidField("limit", "%d is out of bounds", limit).
		WithHint("give a number from 1 to %d, or leave it out for %d", MaxLimit, DefaultLimit)
}

func badCursor() error {
	return brig.InvalidField("cursor", "this cursor is not from a list").
		WithHint("use the next cursor of the page before, or leave it out to begin anew")
}

// UnknownKey: nobody has that key.
func UnknownKey() error {
	return brig.Errorf(brig.Unauthenticated, "the key is not known").
		WithHint("check the key, or ask an administrator for a new one")
}

// NoSecret: the tenant has no secret of that name.
func NoSecret(name string) error {
	return brig.Errorf(brig.NotFound, "no secret %q", clip(name)).
		WithHint("list secrets to see what exists")
}

// SecretMoved: the secret is not what the caller last saw.
func SecretMoved(name string) error {
	return brig.Errorf(brig.FailedPrecondition, "secret %q was changed by someone else", name).
		WithHint("repeat the request if it still makes sense")
}
