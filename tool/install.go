package tool

import (
	"net/url"
	"slices"

	"github.com/brig-run/brig"
)

// Index holds the URLs of the package indexes.
type Index struct {
	// PyPI and NPM are the URLs of the indexes. If one is empty, the default of the
	// installer applies.
	PyPI, NPM string
}

// LayerDir is the directory in which a layer is built.
const LayerDir = workDir + "/layer"

// InstallCommand returns the command that installs a layer's packages into LayerDir.
func (l Layer) InstallCommand(from Index) []string {
	if l.Language == brig.TypeScript {
		argv := []string{"npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", "--prefix", LayerDir}
		if from.NPM != "" {
			argv = append(argv, "--registry", from.NPM)
		}
		return slices.Concat(argv, []string{"--"}, l.Packages)
	}
	argv := []string{
		"python3", "-m", "pip", "install", "--quiet", "--no-input", "--no-cache-dir", "--disable-pip-version-check", "--no-warn-script-location",
		"--target", LayerDir,
	}
	if from.PyPI != "" {
		argv = append(argv, "--index-url", from.PyPI)
		if u, err := url.Parse(from.PyPI); err == nil && u.Scheme == "http" {
			// The operator has configured this index, so trust its host.
			argv = append(argv, "--trusted-host", u.Host)
		}
	}
	return slices.Concat(argv, []string{"--"}, l.Packages)
}

// Installer returns the name of the program that installs a layer's packages.
func (l Layer) Installer() string {
	if l.Language == brig.TypeScript {
		return "npm"
	}
	return "pip"
}
