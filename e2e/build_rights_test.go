package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/attest"
	"github.com/brig-run/brig/guest/wire"
)

// buildSteps are scripts of root that need the rights of a build.
var buildSteps = map[string]string{
	"chown":               `cd /workspace && touch owned && chown 1000:1000 owned && test "$(stat -c %u:%g owned)" = 1000:1000`,
	"another user's file": `echo more >> /home/user/private && test "$(wc -l < /home/user/private)" = 2`,
	"chmod of that":       `chmod 640 /home/user/private`,
	"setgid bit":          `cd /workspace && touch g && chgrp 1000 g && chmod 2755 g && test -g g`,
	"setuid":              `python3 -c 'import os; os.setgroups([]); os.setresgid(1000, 1000, 1000); os.setresuid(1000, 1000, 1000); assert os.getresuid() == (1000,)*3'`,
	"setpriv":             `test "$(setpriv --reuid 1000 --regid 1000 --clear-groups id -u)" = 1000`,
	"runuser":             `test "$(runuser -u nobody -- id -un)" = nobody`,
	"su":                  `test "$(su -s /bin/sh -c 'id -un' nobody)" = nobody`,
	"useradd":             `useradd -m builder && test "$(stat -c %U /home/builder)" = builder && runuser -u builder -- touch /home/builder/f`,
	"chroot":              `chroot / true`,
	"kill another's":      `kill "$(cat /home/user/pid)"`,
	"package":             packageStep,
	"tar with owners":     `cd /workspace && mkdir -p t && touch t/f && tar --owner=1234:1234 --group=1235:1235 -cf t.tar t && rm -r t && tar -xpf t.tar && test "$(stat -c %u:%g t/f)" = 1234:1235`,
}

// fileCapabilities makes a program that asks for a capability. Its owner may set the attribute, which
// has no effect under no_new_privs.
const fileCapabilities = `cp "$(command -v grep)" /workspace/capable && python3 -c 'import os, struct; os.setxattr("/workspace/capable", "security.capability", struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0))'`

// packageStep installs a local package with a file of another group and a script that changes
// users, as a build without a network would.
const packageStep = `set -e
mkdir -p /workspace/p/DEBIAN /workspace/p/opt/brig-test && cd /workspace
printf 'Package: brig-test\nVersion: 1\nArchitecture: all\nMaintainer: none <none@example.com>\nDescription: test\n' > p/DEBIAN/control
printf '#!/bin/sh\nset -e\nchown 1000:1000 /opt/brig-test/d\nsetpriv --reuid 1000 --regid 1000 --clear-groups touch /opt/brig-test/d/made\n' > p/DEBIAN/postinst
chmod 755 p p/DEBIAN p/DEBIAN/postinst && mkdir p/opt/brig-test/d && echo x > p/opt/brig-test/f
chgrp 1000 p/opt/brig-test/f && chmod 2750 p/opt/brig-test/f
dpkg-deb --build p p.deb >/dev/null
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers && touch /var/lib/dpkg/status /var/lib/dpkg/available
dpkg -i p.deb >/dev/null
test "$(stat -c %g:%a /opt/brig-test/f)" = 1000:2750
test "$(stat -c %u /opt/brig-test/d/made)" = 1000`

// asAgent are the arguments of setpriv for the user of the agent.
var asAgent = fmt.Sprintf("--reuid %d --regid %d --clear-groups", wire.AgentID, wire.AgentID)

// refusedSteps are scripts that root cannot run with the rights of a build either.
func refusedSteps() map[string]string {
	const agentFiles = `ls -l /proc/1/fd | grep -e '->'`
	return map[string]string{
		"mount":                        `mount -t tmpfs x /mnt`,
		"mknod":                        `mknod /workspace/null c 1 3`,
		"raw socket":                   `python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'`,
		"hostname":                     `hostname other`,
		"address":                      `ip address add 10.9.9.9/24 dev lo`,
		"trace another's":              `head -c 1 "/proc/$(cat /home/user/pid)/environ" | wc -c | grep -q 1 && readlink "/proc/$(cat /home/user/pid)/exe"`,
		"see the agent's files":        agentFiles,
		"see them as the agent's user": `setpriv ` + asAgent + ` sh -c "` + agentFiles + `"`,
		"more open files":              `ulimit -Hn 2000000`,
		"a setuid program":             `runuser -u nobody -- /workspace/suid euid | grep -x 0`,
	}
}

var capLine = regexp.MustCompile(`(?m)^Cap(Inh|Prm|Eff|Bnd|Amb):\s+([0-9a-f]+)$`)

// capabilitySets returns the capability sets of a user's programs by name.
func capabilitySets(m *machine, user string) map[string]string {
	m.t.Helper()
	out := map[string]string{}
	for _, l := range capLine.FindAllStringSubmatch(m.sh(user, "cat /proc/self/status"), -1) {
		out[l[1]] = strings.TrimLeft(l[2], "0")
	}
	return out
}

// newBuildMachine creates a machine, with the rights of a build if rights is set.
func newBuildMachine(t *testing.T, id brig.ID, rights bool) (*machine, brig.Spec) {
	t.Helper()
	p, images := newProvider(t, t.TempDir())
	var spec brig.Spec
	m := newMachine(t, p, images, id, func(s *brig.Spec) {
		s.BuildRights = rights
		spec = *s
	})
	return setUpBuild(m), spec
}

// setUpBuild prepares a machine for the steps of a build: files and a program of another user,
// programs with privileges, and the configuration of su.
func setUpBuild(m *machine) *machine {
	m.t.Helper()
	m.sh("user", `umask 077; echo secret > ~/private; setsid sleep 1000 >/dev/null 2>&1 & echo $! > ~/pid; chmod 755 ~; chmod 644 ~/pid`)
	m.sh("root", `cp `+probe+` /workspace/suid && chmod 4755 /workspace/suid`)
	m.sh("root", `mkdir /etc/pam.d /etc/security && touch /etc/security/limits.conf && for f in su runuser; do printf 'auth sufficient pam_rootok.so\naccount required pam_permit.so\nsession required pam_limits.so\n' > /etc/pam.d/$f; done`)
	m.sh("root", fileCapabilities)
	return m
}

// TestBuildRights verifies that root in a sandbox that builds a template has exactly the capabilities
// of a build, that other users have none and gain none, and that the host's processes are the same
// as without them. The control is an ordinary sandbox, in which each step fails.
//
//suite:part hostile
func TestBuildRights(t *testing.T) {
	needRoot(t)
	build, spec := newBuildMachine(t, "build", true)
	ordinary, plain := newBuildMachine(t, "ordinary", false)
	want := fmt.Sprintf("%x", wire.BuildRights)
	root, user, none := capabilitySets(build, "root"), capabilitySets(build, "user"), capabilitySets(ordinary, "root")
	for set, value := range map[string]string{"Prm": want, "Eff": want, "Bnd": want, "Inh": "", "Amb": ""} {
		if got, ok := root[set]; ok && got != value {
			t.Errorf("Cap%s of root is %q, want %q", set, got, value)
		}
		if user[set]+none[set] != "" {
			t.Errorf("Cap%s of the user is %q, and of an ordinary root %q", set, user[set], none[set])
		}
	}
	if _, ok := root["Eff"]; !ok || len(user) == 0 {
		t.Errorf("the sets are %v and %v", root, user)
	}
	for _, m := range []*machine{build, ordinary} {
		for _, who := range []string{"root", "user"} {
			if f := m.facts(who, "caps"); f["id.no_new_privs"] != "1" || m == ordinary && f["caps.bounding"] != "" {
				t.Errorf("%s has no_new_privs %s and the bounding set %q", who, f["id.no_new_privs"], f["caps.bounding"])
			}
		}
	}
	fails := func(m *machine, who, script string) (bool, string) {
		t.Helper()
		res, out, err := m.try(brig.Command{Shell: script, User: who})
		if err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		return res.ExitCode != 0, out
	}
	build.sh("root", "setpriv "+asAgent+" true") // otherwise the step of the agent's user shows nothing
	for name, script := range refusedSteps() {
		if failed, out := fails(build, "root", script); !failed {
			t.Errorf("root can %s: %s", name, out)
		}
	}
	for name, script := range buildSteps {
		if failed, out := fails(ordinary, "root", script); !failed {
			t.Errorf("control: an ordinary root can %s: %s", name, out)
		}
		if failed, out := fails(build, "root", script); failed {
			t.Errorf("root cannot %s: %s", name, out)
		}
		if name == "chown" || strings.Contains(script, "/home/user") {
			continue // the file or the process is the user's own
		}
		if failed, out := fails(build, "user", script); !failed {
			t.Errorf("the user can %s: %s", name, out)
		}
	}
	if out := build.sh("user", "/workspace/suid euid; /workspace/capable ^CapEff /proc/self/status"); out != "1000\nCapEff:\t0000000000000000\n" {
		t.Errorf("with a setuid program and one with capabilities the user is %q", out)
	}
	p, images := newProvider(t, t.TempDir(), "capabilities")
	mutant := setUpBuild(newMachine(t, p, images, "mutant", nil))
	for _, name := range []string{"mount", "hostname", "address", "trace another's", "see the agent's files", "more open files"} {
		if failed, out := fails(mutant, "root", refusedSteps()[name]); failed {
			t.Errorf("control: root with all capabilities of the agent cannot %s: %s", name, out)
		}
	}
	compareHosts(t, build, ordinary)
	attestBuild(t, build, spec, plain)
	// A program that leaves its group may survive the end of its step, but not the sandbox.
	begin := time.Now()
	res, out, err := build.try(brig.Command{Shell: "setsid setpriv --reuid 1000 --regid 1000 --clear-groups sleep 1000 & wait", User: "root", Timeout: time.Second})
	if err != nil || !res.TimedOut || time.Since(begin) > promptTimeout {
		t.Errorf("a step that leaves a program behind, after %v: %+v, %v: %s", time.Since(begin), res, err, out)
	}
	if err := build.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	build.checkNoTraces()
}

// compareHosts checks that the sentry of a build has the same rights on the host as any other.
func compareHosts(t *testing.T, build, ordinary *machine) {
	t.Helper()
	rights := func(m *machine) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.sentry()))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(regexp.MustCompile(`(?m)^(Uid|Gid|Groups|Cap\w+|NoNewPrivs|Seccomp\w*):.*$`).FindAllString(string(b), -1), "\n")
	}
	if got, want := rights(build), rights(ordinary); got != want || !strings.Contains(got, "Seccomp:\t2") {
		t.Errorf("the sentry of a build has the rights\n%s\nwant\n%s", got, want)
	}
}

// attestBuild checks that a probe reports no gap for the rights of a build, and one for the same
// rights in a sandbox that should not have them.
func attestBuild(t *testing.T, m *machine, spec, plain brig.Spec) {
	t.Helper()
	host, err := m.Enforced(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	newID := func() string { n++; return fmt.Sprintf("probe-%d-%d", time.Now().UnixNano(), n) }
	for _, c := range []struct {
		spec brig.Spec
		gaps bool
	}{{spec, false}, {plain, true}} {
		findings, err := attest.Probe(t.Context(), m, c.spec, false, newID)
		if err != nil {
			t.Fatal(err)
		}
		got := attest.Apply(host, findings, time.Now())[brig.AreaIsolation]
		if has := got.Level != host[brig.AreaIsolation].Level; has != c.gaps {
			t.Errorf("with rights %v the isolation is %+v", c.spec.BuildRights, got)
		}
	}
}

// TestBuildRightsSaved verifies that only the files of a sandbox that builds a template can be saved,
// and that an instance from such a save has the rights only if its spec has them.
//
//suite:part core
func TestBuildRightsSaved(t *testing.T) {
	needRoot(t)
	m, spec := newBuildMachine(t, "saved-build", true)
	m.sh("root", buildSteps["chown"])
	if err := m.p.CheckSave(t.Context(), m.Instance); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("a check for a save with memory: %v", err)
	}
	if _, err := m.p.Save(t.Context(), m.Instance, "memory", brig.SaveOptions{Stay: true}); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("a save with memory: %v", err)
	}
	if _, err := m.p.Save(t.Context(), m.Instance, "files", brig.SaveOptions{Stay: true, FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	for _, rights := range []bool{false, true} {
		spec.BuildRights, spec.Name = rights, fmt.Sprintf("copy-%v", rights)
		in, err := m.p.Restore(t.Context(), "files", brig.ID(spec.Name), spec, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		c := &machine{Instance: in, t: t, p: m.p}
		want := ""
		if rights {
			want = fmt.Sprintf("%x", wire.BuildRights)
		}
		if got := capabilitySets(c, "root"); got["Eff"] != want {
			t.Errorf("a copy with rights %v has the sets %v", rights, got)
		}
		if got := c.sh("user", "stat -c %u:%g /workspace/owned"); got != "1000:1000\n" {
			t.Errorf("the file is of %q", got)
		}
		if err := in.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
	if err := m.p.RemoveSave(t.Context(), "files"); err != nil {
		t.Error(err)
	}
	// Instances of the pool have been started without the rights.
	spec.Blank, spec.Ephemeral, spec.BuildRights = true, true, true
	if in, err := m.p.Create(t.Context(), "blank-build", spec, time.Now().Add(time.Hour)); err == nil {
		t.Error("a blank instance has the rights of a build", in.Destroy(t.Context()))
	}
	spec.BuildRights = false
	in, err := m.p.Create(t.Context(), "blank", spec, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	spec.Blank, spec.BuildRights = false, true
	if err := in.Bind(t.Context(), spec, time.Now().Add(time.Hour)); err == nil {
		t.Error("a blank instance became one with the rights of a build")
	}
	if err := in.Destroy(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}
