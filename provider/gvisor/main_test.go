//go:build !shim

package gvisor

import (
	"slices"
	"testing"

	"github.com/brig-run/brig"
)

// A sentry receives its limits as arguments only if gVisor does not pass them
// itself.
func TestSentryLimitArguments(t *testing.T) {
	dir := t.TempDir()
	o := order{Version: orderVersion, Cgroup: "/brig/x/y", Limits: brig.Limits{CPUs: 0.5, Memory: 64 << 20}}
	if err := (layout{dir: dir}).writeJSON(orderFile, o, false); err != nil {
		t.Fatal(err)
	}
	given := []string{"runsc-sandbox", "--network=none", "boot", "--bundle=" + dir, "--total-memory", "99", "name"}
	got := prepareProcess(slices.Clone(given))
	if got[len(got)-1] != "name" {
		t.Errorf("the name is not last: %q", got)
	}
	for _, want := range []string{"--cpu-quota=50000", "--cpu-period=100000", "--total-memory=67108864"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing: %q", want, got)
		}
	}
	for name, args := range map[string][]string{
		"by hand":       {"runsc-sandbox", "boot", "--bundle=" + t.TempDir(), "name"},
		"gVisor joined": {"runsc-sandbox", "boot", "--cpu-num", "2", "--bundle=" + dir, "name"},
		"gofer":         {"runsc-gofer", "gofer", "--bundle", dir, "name"},
		"run":           {"runsc", "run", "--bundle=" + dir, "name"},
	} {
		if got := prepareProcess(slices.Clone(args)); !slices.Equal(got, args) {
			t.Errorf("%s: %q became %q", name, args, got)
		}
	}
}
