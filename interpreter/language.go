package interpreter

import (
	"embed"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/brig-run/brig"
)

// Dir is where drivers are put in a sandbox.
const Dir = "/tmp/.brig"

//go:embed driver
var drivers embed.FS

// Language is how code in one language is interpreted.
type Language struct {
	Name brig.Language
	// Prefix begins the names of sandboxes for its programs.
	Prefix string
	// Argv starts the driver, of which Files are put into Dir.
	Argv  []string
	Files []brig.File
	// Program is what an image must have, by the name that people know.
	Program string
	// Values says that programs take arguments and return a value.
	Values bool
	// Limits says that the driver can take on a program's limits by itself.
	Limits bool
}

// Lookup returns how a language is interpreted; ok is false when it is none of
// ours.
func Lookup(l brig.Language) (Language, bool) {
	switch l {
	case brig.Python:
		return Language{
			Name: l, Prefix: "py-", Argv: []string{"python3", Dir + "/python.py"}, Files: files("python"),
			Program: "python3", Values: true, Limits: true,
		}, true
	case brig.JavaScript, brig.TypeScript:
		return Language{
			Name: l, Prefix: "js-", Argv: []string{"node", Dir + "/javascript.js"}, Files: files("javascript"),
			Program: "node", Values: true,
		}, true
	case brig.Bash:
		return Language{Name: l, Prefix: "sh-", Argv: []string{wireAgent, "shell-driver"}, Program: "bash"}, true
	}
	return Language{}, false
}

// Jupyter returns how code in a language that is none of ours is interpreted:
// by a Jupyter kernel of the image, of that name or for that language.
func Jupyter(l brig.Language) Language {
	name := strings.TrimPrefix(string(l), brig.JupyterPrefix)
	return Language{
		Name: l, Prefix: "jp-", Argv: []string{"python3", Dir + "/jupyter.py", name}, Files: files("jupyter"),
		Program: "Jupyter kernel for " + name,
	}
}

// wireAgent is the agent's own program: it drives shells itself.
const wireAgent = "/proc/1/exe"

// files returns the drivers whose names begin with prefix. Callers share their
// bytes, which every run would copy otherwise.
func files(prefix string) []brig.File {
	var out []brig.File
	for _, f := range readDrivers() {
		if strings.HasPrefix(f.Path, prefix) {
			out = append(out, f)
		}
	}
	return slices.Clip(out)
}

var readDrivers = sync.OnceValue(func() []brig.File {
	entries, err := drivers.ReadDir("driver")
	if err != nil {
		return nil // embedded: it is there
	}
	var out []brig.File
	for _, e := range entries {
		b, err := drivers.ReadFile(path.Join("driver", e.Name()))
		if err != nil {
			continue
		}
		out = append(out, brig.File{Path: e.Name(), Data: b})
	}
	return out
})
