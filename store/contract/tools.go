package contract

import "github.com/brig-run/brig"

// NoToolSetup: the tenant has no setup of that id.
func NoToolSetup(id string) error {
	return brig.Errorf(brig.NotFound, "no setup of tools %q", brig.Clip(id, 80)).
		WithHint("list setups to see what exists")
}

// NoToolVariable: the tenant has no variable of that id.
func NoToolVariable(id string) error {
	return brig.Errorf(brig.NotFound, "no variable of tools %q", brig.Clip(id, 80)).
		WithHint("list the variables of a setup to see what exists")
}

// ToolKeyTaken: another variable of the setup has that key.
func ToolKeyTaken(key string) error {
	return brig.Errorf(brig.AlreadyExists, "the setup has a variable %q", brig.Clip(key, 80)).
		WithHint("change that one, or choose another key")
}
