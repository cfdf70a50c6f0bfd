package contract

import "github.com/brig-run/brig"

// NoTenant: there is none of that name.
func NoTenant(name string) error {
	return brig.Errorf(brig.NotFound, "no tenant %q", clip(name)).
		WithHint("an operator lists tenants with brig tenant ls")
}

// NoKey: there is no key of that id.
func NoKey(id string) error {
	return brig.Errorf(brig.NotFound, "no key %q", clip(id)).
		WithHint("list keys to see their ids")
}

// clip shortens what a caller sent for a message.
func clip(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return s
}
