// Package version provides the version of this build to the command line, the APIs, the metrics
// and the user agents.
package version

import (
	"runtime/debug"
	"strings"
)

// linked is the version that the linker sets, for builds outside a Git checkout:
//
//	go build -ldflags "-X github.com/brig-run/brig/internal/version.linked=v1.2.3"
var linked string

// unknown is the version of a build without version information, for example a
// test program.
const unknown = "devel"

// gvisorModule is the module that has the version of the embedded gVisor.
const gvisorModule = "gvisor.dev/gvisor"

// String returns the version: the Git tag of the commit, for example v1.2.3, or
// the pseudo-version of a commit without a tag. The suffix "+dirty" marks a
// build with uncommitted changes.
func String() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(linked, info)
}

// versionOf returns the version that the linker set, or else the version in the
// build information.
func versionOf(linked string, info *debug.BuildInfo) string {
	if linked != "" {
		return linked
	}
	if info == nil {
		return unknown
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	return unknown
}

// GVisor returns the version of the embedded gVisor.
func GVisor() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	for _, d := range info.Deps {
		if d.Path == gvisorModule {
			return d.Version
		}
	}
	return unknown
}

// UserAgent returns the product token of HTTP requests to other services.
func UserAgent() string {
	return "brig/" + strings.TrimPrefix(String(), "v")
}
