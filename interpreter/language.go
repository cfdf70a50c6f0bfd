package interpreter

import (
	"embed"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/brig-run/brig"
)

// Dir is the directory of the drivers in a sandbox.
const Dir = "/tmp/.brig"

//go:embed driver
var drivers embed.FS

// Language describes the driver of a programming language.
type Language struct {
	Name brig.Language
	// Prefix is the prefix of the names of sandboxes for its programs.
	Prefix string
	// Argv is the driver's command line. Files are the driver's files in Dir.
	Argv  []string
	Files []brig.File
	// Program is the common name of the interpreter that an image must contain.
	Program string
	// Values reports whether programs take arguments and return a value.
	Values bool
	// Limits reports whether the driver itself can set a program's resource limits.
	Limits bool
}

// Lookup returns the driver of a language. ok is false if the language has no
// built-in driver.
func Lookup(l brig.Language) (Language, bool) {
	switch l {
	case brig.Python:
		return Language{
			Name: l, Prefix: "py-", Argv: []string{"python3", Dir + "/python.py"}, Files: driverFiles("python"),
			Program: "python3", Values: true, Limits: true,
		}, true
	case brig.JavaScript, brig.TypeScript:
		return Language{
			Name: l, Prefix: "js-", Argv: []string{"node", Dir + "/javascript.js"}, Files: driverFiles("javascript"),
			Program: "node", Values: true,
		}, true
	case brig.Bash:
		return Language{Name: l, Prefix: "sh-", Argv: []string{agentFile, "shell-driver"}, Program: "bash"}, true
	}
	return Language{}, false
}

// Jupyter returns the driver of a language that has no built-in driver. It uses the image's
// Jupyter kernel with that name or for that language.
func Jupyter(l brig.Language) Language {
	name := strings.TrimPrefix(string(l), brig.JupyterPrefix)
	return Language{
		Name: l, Prefix: "jp-", Argv: []string{"python3", Dir + "/jupyter.py", name}, Files: driverFiles("jupyter"),
		Program: "Jupyter kernel for " + name,
	}
}

// agentFile is the agent's own program, which drives shells itself.
const agentFile = "/proc/1/exe"

// driverFiles returns the driver files whose names begin with prefix. The returned files share
// their data, so that not every run makes a copy.
func driverFiles(prefix string) []brig.File {
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
		return nil // embedded files always exist
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

// NeedsAtStart reports whether an interpreter must be started with the environment variables of
// these names, because the interpreter, its loader or a C library reads them only at startup. A
// bash program is a process of its own, which always gets the variables. NODE_ENV matters only to
// programs.
func NeedsAtStart(l brig.Language, names iter.Seq[string]) bool {
	prefixes := []string{"LD_", "LC_", "LANG", "LOCPATH", "MALLOC_", "GLIBC_TUNABLES", "BRIG_"}
	switch l {
	case brig.Bash:
		return false
	case brig.JavaScript, brig.TypeScript:
		prefixes = append(prefixes, "NODE_", "UV_", "OPENSSL_CONF", "SSL_CERT_")
	default:
		prefixes = append(prefixes, "PYTHON")
	}
	for name := range names {
		if name != "NODE_ENV" && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return true
		}
	}
	return false
}
