package tool

import (
	"embed"
	"encoding/json"
	"regexp"
	"slices"

	"github.com/brig-run/brig"
)

// DriverRequest is the request to a driver.
type DriverRequest struct {
	Key    string `json:"key"`
	Name   string `json:"name"` // empty means the last function of the source
	Source string `json:"source"`
	// Arguments is a JSON object, and State the agent's state.
	Arguments json.RawMessage `json:"arguments"`
	State     json.RawMessage `json:"state"`
	// Typed reports that the arguments already have their types.
	Typed bool `json:"typed"`
	// Packages are directories with packages.
	Packages []string `json:"packages"`
	// Parameters are the parameter names in order, for a language in which the
	// function cannot be inspected.
	Parameters []string `json:"parameters"`
}

//go:embed driver
var drivers embed.FS

// ExitLostChannel is the exit code of a driver that has a report but no open
// channel.
const ExitLostChannel = 113

// Argv returns the command that starts the driver of a language in a box. The
// driver's source is an argument, so that files in the box, which earlier tools
// may have changed, cannot replace it.
func Argv(l brig.Language) []string {
	if l == brig.TypeScript {
		return []string{"node", "--no-warnings", "--input-type=module", "-e", source("node.mjs")}
	}
	return []string{"python3", "-I", "-B", "-c", source("python.py")}
}

func source(name string) string {
	b, err := drivers.ReadFile("driver/" + name)
	if err != nil {
		return "" // embedded files always exist
	}
	return string(b)
}

var functionForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

var lastForm = regexp.MustCompile(`(?m)^(?:async[ \t]+)?def[ \t]+([A-Za-z_][A-Za-z0-9_]*)`)

// LastFunction returns the name of the last function in a Python source, for
// messages. The driver that runs the source determines the name more precisely.
func LastFunction(source string) string {
	all := lastForm.FindAllStringSubmatch(source, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// ValidName reports whether s can be a function's name.
func ValidName(s string) bool { return functionForm.MatchString(s) }

// ChooseSetup returns the setup that runs a tenant's tools: the first existing kind
// in the order of brig.ToolKinds, or the default of the kind local, which is
// not stored.
func ChooseSetup(tenant string, list []*brig.ToolSetup) *brig.ToolSetup {
	for _, kind := range brig.ToolKinds {
		i := slices.IndexFunc(list, func(s *brig.ToolSetup) bool { return s.Kind == kind })
		if i >= 0 {
			return list[i]
		}
	}
	return &brig.ToolSetup{Tenant: tenant, Kind: brig.ToolLocal, Config: Default(brig.ToolLocal)}
}
