package tool

import (
	"regexp"
	"slices"

	"github.com/brig-run/brig"
)

var functionForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

var lastForm = regexp.MustCompile(`(?m)^(?:async[ \t]+)?def[ \t]+([A-Za-z_][A-Za-z0-9_]*)`)

// LastFunction is the name of the last function of a source in Python, for
// messages: who runs it reads it better.
func LastFunction(source string) string {
	all := lastForm.FindAllStringSubmatch(source, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// ValidName reports whether s can be a function's name.
func ValidName(s string) bool { return functionForm.MatchString(s) }

// Choose returns the setup that a tenant's tools are run by: the first kind in
// brig.ToolKinds that there is, or the default of the kind local, which is not
// on record.
func Choose(tenant string, list []*brig.ToolSetup) *brig.ToolSetup {
	for _, kind := range brig.ToolKinds {
		i := slices.IndexFunc(list, func(s *brig.ToolSetup) bool { return s.Kind == kind })
		if i >= 0 {
			return list[i]
		}
	}
	return &brig.ToolSetup{Tenant: tenant, Kind: brig.ToolLocal, Config: Default(brig.ToolLocal)}
}
