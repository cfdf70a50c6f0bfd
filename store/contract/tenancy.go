package contract

import "github.com/brig-run/brig"

// NoTenant: there is none of that name.
func NoTenant(name string) error {
	return brig.Errorf(brig.NotFound, "no tenant %q", brig.Clip(name, 80)).
		WithHint("an operator lists tenants with brig tenant ls")
}

// NoSession: nobody has that one.
func NoSession() error {
	return brig.Errorf(brig.Unauthenticated, "there is no such session").WithHint("sign in again")
}

// NoKey: there is no key of that id.
func NoKey(id string) error {
	return brig.Errorf(brig.NotFound, "no key %q", brig.Clip(id, 80)).
		WithHint("list keys to see their ids")
}
