package e2e

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// linked returns a machine with an uplink whose packets are discarded.
func linked(t *testing.T, id brig.ID, disabled ...string) *machine {
	t.Helper()
	p, images := newProvider(t, t.TempDir(), disabled...)
	m := newMachine(t, p, images, id, nil)
	up, err := m.Uplink(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { up.Close() })
	return m
}

// networkActions lists the probe's actions that change a sandbox's network.
var networkActions = []string{"tun.attach", "tun.attach.tap", "address", "mtu", "route", "unlink"}

// TestAttackUplink verifies that a program of any user can neither intercept nor redirect the
// packets of its sandbox's interface, nor send forged packets, not even from a new network
// namespace in which such actions are allowed.
//
//suite:part hostile
func TestAttackUplink(t *testing.T) {
	needRoot(t)
	m := linked(t, "linked")
	for _, user := range []string{"user", "root"} {
		f := m.facts(user, "link")
		for _, name := range append([]string{"raw.udp", "raw.any", "raw6", "packet", "packet.dgram"}, networkActions...) {
			if f[name] != "EPERM" {
				t.Errorf("as %s, %s: %q", user, name, f[name])
			}
			attack.RecordCase("NET-12", name+" as "+user, f[name] != "EPERM")
		}
		// gVisor lets a socket request any address, but the sandbox has no
		// other address to bind.
		if f["bind.other"] != "EADDRNOTAVAIL" {
			t.Errorf("user %s, bind to a foreign address: %q", user, f["bind.other"])
		}
		for name, verdict := range f {
			if strings.HasPrefix(name, "home.") {
				attack.RecordCase("NET-12", "from a network of its own, "+name+" as "+user, verdict != "EPERM")
			}
			switch {
			case strings.HasPrefix(name, "home.") && verdict != "EPERM":
				t.Errorf("as %s, from a network of its own, %s: %q", user, name, verdict)
			case strings.HasPrefix(name, "own.") && verdict != "allowed" && user == "user":
				t.Errorf("in a new network namespace, %s: %q", name, verdict) // root may fail, because it cannot map its own user ID
			}
		}
		if f["own.address"] == "" || f["home.veth"] == "" {
			t.Errorf("as %s there was no network of its own: %v", user, f)
		}
		if out := m.sh(user, "cat /proc/net/route"); strings.Count(out, "eth0") != 2 {
			t.Errorf("as %s, it has changed: %s", user, out)
		}
	}
}

// TestAttackUplinkSucceedsWithCapabilities is the control: with the agent's capabilities, the
// actions of TestAttackUplink succeed.
//
//suite:part hostile
func TestAttackUplinkSucceedsWithCapabilities(t *testing.T) {
	needRoot(t)
	f := linked(t, "open", "capabilities").facts("root", "link")
	for _, name := range networkActions {
		if f[name] != "allowed" {
			t.Errorf("%s: %q, and the capabilities are there", name, f[name])
		}
		attack.RecordMutant("NET-12", name, "no capabilities", f[name] == "allowed")
	}
}
