package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// parseFork returns the changes that flags of fork specify.
func parseFork(t *testing.T, args ...string) (brig.ForkSpec, error) {
	t.Helper()
	var f forkFlags
	cmd := &cobra.Command{}
	f.add(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return f.spec(cmd.Flags().Changed)
}

// TestForkFlags checks that each flag of fork changes one property of copies, and that a flag that is
// not set changes nothing.
func TestForkFlags(t *testing.T) {
	rules := func(bandwidth int64, rules ...brig.EgressRule) *brig.Egress {
		return &brig.Egress{Rules: rules, Bandwidth: bandwidth}
	}
	allowed := brig.EgressRule{Host: "a.example", Ports: []int{443}}
	for _, c := range []struct {
		args []string
		want brig.ForkSpec
	}{
		{nil, brig.ForkSpec{}},
		{[]string{"-n", "3", "--name", "two", "--ttl", "1m", "--paused"}, brig.ForkSpec{Count: 3, Name: "two", TTL: time.Minute, Paused: true}},
		{[]string{"--label", "a=b"}, brig.ForkSpec{Labels: map[string]string{"a": "b"}}},
		{[]string{"--env", "A=B"}, brig.ForkSpec{Env: map[string]string{"A": "B"}}},
		{[]string{"--user", "root", "--cwd", "/srv"}, brig.ForkSpec{User: "root", Dir: "/srv"}},
		{[]string{"--pause-at-end", "--pause-files-only"}, brig.ForkSpec{AtEnd: &brig.AtEnd{Pause: true, FilesOnly: true}}},
		{[]string{"--pause-at-end=false"}, brig.ForkSpec{AtEnd: &brig.AtEnd{}}},
		{[]string{"--allow", "a.example:443", "--bandwidth", "1KiB"}, brig.ForkSpec{Egress: rules(1024, allowed)}},
		{[]string{"--deny", "*"}, brig.ForkSpec{Egress: rules(0, brig.EgressRule{Host: "*", Deny: true})}},
		{[]string{"--memory", "1GiB", "--cpus", "2", "--processes", "9", "--open-files", "99", "--disk", "1MiB"},
			brig.ForkSpec{Limits: brig.Limits{Memory: brig.GiB, CPUs: 2, Processes: 9, OpenFiles: 99, Disk: brig.MiB}}},
		{[]string{"--volume", "data:/data:ro"}, brig.ForkSpec{Volumes: []brig.VolumeMount{{Name: "data", Path: "/data", ReadOnly: true}}}},
	} {
		if c.want.Count == 0 {
			c.want.Count = 1
		}
		got, err := parseFork(t, c.args...)
		if len(got.Env) == 0 {
			got.Env = nil
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v, %v, want %+v", c.args, got, err, c.want)
		}
	}
	for field, args := range map[string][]string{
		"--count": {"-n", "0"}, "--bandwidth": {"--bandwidth", "1MiB"}, "--pause-files-only": {"--pause-files-only"},
		"--volume": {"--volume", "data"}, "--memory": {"--memory", "much"}, "--label": {"--label", "a"},
	} {
		if _, err := parseFork(t, args...); brig.KindOf(err) != brig.InvalidArgument || brig.AsError(err).Field != field {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestForkErrorsNameFlags checks that errors of the API about copies name the flags of fork.
func TestForkErrorsNameFlags(t *testing.T) {
	var f forkFlags
	cmd := &cobra.Command{}
	f.add(cmd)
	for field, want := range map[string]string{
		"default_user": "--user", "default_cwd": "--cwd", "volumes[0].name": "--volume", "egress.rules[0].host": "--allow",
		"limits.memory": "--memory", "pause_files_only": "--pause-files-only",
	} {
		if got, ok := flagFor(cmd, field); !ok || got != want {
			t.Errorf("%s is %q, want %s", field, got, want)
		}
	}
}
