package gvisor

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// The sentry starts the agent of a build with the bounding set that the agent expects, and with no
// capability of a build that the agent lacks. Without the rights, the bounding set is empty.
func TestBundleCapabilities(t *testing.T) {
	numbers := map[string]int{
		"CAP_CHOWN": unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_FOWNER": unix.CAP_FOWNER, "CAP_FSETID": unix.CAP_FSETID,
		"CAP_KILL": unix.CAP_KILL, "CAP_SETGID": unix.CAP_SETGID, "CAP_SETUID": unix.CAP_SETUID,
		"CAP_SYS_CHROOT": unix.CAP_SYS_CHROOT, "CAP_SETFCAP": unix.CAP_SETFCAP,
	}
	for build, want := range map[bool]uint64{false: 0, true: wire.BuildRights} {
		o := order{Build: build, Limits: brig.DefaultLimitRange().Default}
		p := o.bundle().Process
		var got uint64
		for _, name := range p.Capabilities["bounding"] {
			n, ok := numbers[name]
			if !ok || !slices.Contains(p.Capabilities["permitted"], name) || !slices.Contains(p.Capabilities["ambient"], name) {
				t.Errorf("the bounding set has %s, and the agent %v", name, p.Capabilities["permitted"])
			}
			got |= 1 << n
		}
		if got != want || len(p.Capabilities["inheritable"]) > 0 || !p.NoNewPrivileges {
			t.Errorf("with the rights %v the process has %#v, and no_new_privs %v", build, p.Capabilities, p.NoNewPrivileges)
		}
		if slices.Contains(p.Args, wire.BuildWord) != build {
			t.Errorf("with the rights %v the agent is started as %q", build, p.Args)
		}
	}
}

// The /tmp of a build is on the disk of the sandbox. gVisor would mount a tmpfs at an empty /tmp, so
// something is mounted in it.
func TestBundleTmp(t *testing.T) {
	for build, want := range map[bool]string{false: "/tmp", true: "/tmp/.brig"} {
		o := order{Build: build, Limits: brig.DefaultLimitRange().Default}
		var got []string
		for _, m := range o.bundle().Mounts {
			if strings.HasPrefix(m.Destination, "/tmp") {
				got = append(got, m.Destination)
			}
		}
		if !slices.Equal(got, []string{want}) {
			t.Errorf("with the rights %v: mounts at %q, want %q", build, got, want)
		}
	}
}
