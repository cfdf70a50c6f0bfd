package tool

import (
	"embed"
	"encoding/json"

	"github.com/brig-run/brig"
)

// Order is what a driver is told to do.
type Order struct {
	Key    string `json:"key"`
	Name   string `json:"name"` // empty is the last function of the source
	Source string `json:"source"`
	// Arguments is a JSON object, State what the agent is.
	Arguments json.RawMessage `json:"arguments"`
	State     json.RawMessage `json:"state"`
	// Typed says that the arguments have their types already.
	Typed bool `json:"typed"`
	// Packages are directories in which packages lie.
	Packages []string `json:"packages"`
	// Parameters are names in the order in which the function has them, where
	// that cannot be asked of it.
	Parameters []string `json:"parameters"`
}

//go:embed driver
var drivers embed.FS

// LostChannel is the exit code of a driver that has a report and nobody to
// tell it.
const LostChannel = 113

// Argv starts the driver of a language in a box. The source travels as an
// argument, so that nothing in the box, which tools have used before, decides
// what it is.
func Argv(l brig.Language) []string {
	if l == brig.TypeScript {
		return []string{"node", "--no-warnings", "--input-type=module", "-e", source("node.mjs")}
	}
	return []string{"python3", "-I", "-B", "-c", source("python.py")}
}

func source(name string) string {
	b, err := drivers.ReadFile("driver/" + name)
	if err != nil {
		return "" // embedded: it is there
	}
	return string(b)
}
