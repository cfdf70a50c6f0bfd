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
	// Arguments is a JSON object, and State is the agent's state.
	Arguments json.RawMessage `json:"arguments"`
	State     json.RawMessage `json:"state"`
	// Typed means that the arguments already have the types of the schema.
	Typed bool `json:"typed"`
	// Packages are the directories that contain packages.
	Packages []string `json:"packages"`
	// Parameters are the parameter names in order, for languages in which a
	// function's parameters cannot be inspected.
	Parameters []string `json:"parameters"`
}

//go:embed driver
var drivers embed.FS

// ExitLostChannel is the exit code of a driver that cannot send its report because
// the channel is closed.
const ExitLostChannel = 113

// Argv returns the command that starts the driver of a language in a sandbox. The
// driver's source is an argument, so that earlier tools cannot replace the driver
// by changing files in the sandbox.
func Argv(l brig.Language) []string {
	if l == brig.TypeScript {
		return []string{"node", "--no-warnings", "--input-type=module", "-e", driverSource("node.mjs")}
	}
	return []string{"python3", "-I", "-B", "-c", driverSource("python.py")}
}

func driverSource(name string) string {
	b, err := drivers.ReadFile("driver/" + name)
	if err != nil {
		return "" // embedded files always exist
	}
	return string(b)
}

var functionForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

var lastForm = regexp.MustCompile(`(?m)^(?:async[ \t]+)?def[ \t]+([A-Za-z_][A-Za-z0-9_]*)`)

// FindLastFunction returns the name of the last function in a Python source. It is an
// estimate for messages; the driver that runs the source determines the actual
// function.
func FindLastFunction(source string) string {
	all := lastForm.FindAllStringSubmatch(source, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// IsValidName reports whether s can be a function's name.
func IsValidName(s string) bool { return functionForm.MatchString(s) }

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
