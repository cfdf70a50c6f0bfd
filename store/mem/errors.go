package mem

import "github.com/brig-run/brig"

// The errors of the contract. What a caller reads must not depend on which
// store is behind it, nor tell what other tenants have.

func errNoSandbox(name string) error {
	return brig.Errorf(brig.NotFound, "no sandbox %q", name).
		WithHint("list sandboxes to see what exists")
}

func errNoExec(id string) error {
	return brig.Errorf(brig.NotFound, "no execution %q", id).
		WithHint("list the sandbox's executions to see what is remembered")
}

func errNoRun(name string) error {
	return brig.Errorf(brig.NotFound, "no run %q", name).
		WithHint("outcomes are remembered for a while only; run the program again")
}

func errNameTaken(name string) error {
	return brig.Errorf(brig.AlreadyExists, "a sandbox named %q exists", name).
		WithHint("choose another name, or remove that sandbox first")
}

func errIDTaken(id brig.ID) error {
	return brig.Errorf(brig.AlreadyExists, "the sandbox id %q is taken", id).
		WithHint("an id is never used again; make a new one")
}

func errMoved(r *brig.Record) error {
	return brig.Errorf(brig.FailedPrecondition, "sandbox %q was changed by someone else", r.Spec.Name).
		WithHint("look at the sandbox again and repeat the request if it still makes sense")
}

func errLimit(limit int) error {
	return brig.InvalidField("limit", "%d is out of bounds", limit).
		WithHint("give a number from 1 to %d, or leave it out for %d", maxLimit, defaultLimit)
}

func errCursor() error {
	return brig.InvalidField("cursor", "this cursor is not from a list").
		WithHint("use the next cursor of the page before, or leave it out to begin anew")
}

func errUnknownKey() error {
	return brig.Errorf(brig.Unauthenticated, "the key is not known").
		WithHint("check the key, or ask an administrator for a new one")
}
