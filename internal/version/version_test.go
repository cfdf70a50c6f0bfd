package version

import (
	"runtime/debug"
	"testing"
)

// TestVersionOfPrefersLinkedVersion checks the precedence of the sources of the version.
func TestVersionOfPrefersLinkedVersion(t *testing.T) {
	revision := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}}
	for _, c := range []struct {
		name, linked string
		info         *debug.BuildInfo
		want         string
	}{
		{"the linker's", "v1.2.3", &debug.BuildInfo{Main: debug.Module{Version: "v9.9.9"}}, "v1.2.3"},
		{"a tag", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: revision}, "v1.2.3"},
		{"a commit", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: revision}, "0123456789ab"},
		{"a build without Git", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "devel"},
		{"no build information", "", nil, "devel"},
	} {
		if got := versionOf(c.linked, c.info); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestUserAgentContainsVersion checks that the product has a version, without a tag's "v".
func TestUserAgentContainsVersion(t *testing.T) {
	old := linked
	defer func() { linked = old }()
	linked = "v1.2.3"
	if got := UserAgent(); got != "brig/1.2.3" {
		t.Errorf("the user agent is %s", got)
	}
}
