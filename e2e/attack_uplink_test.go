package e2e

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// linked is a machine with an uplink whose packets nobody wants.
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

// meddling is what changes the network that a sandbox has.
var meddling = []string{"tun.attach", "tun.attach.tap", "address", "mtu", "route", "unlink"}

// Whoever a program is, it can neither take the packets of its sandbox's
// interface, nor change where they go, nor make some that no socket makes. Not
// from a network of its own either, where it may do all of that.
//
//suite:part hostile
func TestAttackUplink(t *testing.T) {
	needRoot(t)
	m := linked(t, "linked")
	for _, user := range []string{"user", "root"} {
		f := m.facts(user, "link")
		for _, name := range append([]string{"raw.udp", "raw.any", "raw6", "packet", "packet.dgram"}, meddling...) {
			if f[name] != "EPERM" {
				t.Errorf("as %s, %s: %q", user, name, f[name])
			}
			attack.Tried("NET-12", name+" as "+user, f[name] != "EPERM")
		}
		// gVisor says yes to a socket that would have any address, and it has
		// none for it.
		if f["bind.other"] != "EADDRNOTAVAIL" {
			t.Errorf("as %s, another's address: %q", user, f["bind.other"])
		}
		for name, verdict := range f {
			if strings.HasPrefix(name, "home.") {
				attack.Tried("NET-12", "from a network of its own, "+name+" as "+user, verdict != "EPERM")
			}
			switch {
			case strings.HasPrefix(name, "home.") && verdict != "EPERM":
				t.Errorf("as %s, from a network of its own, %s: %q", user, name, verdict)
			case strings.HasPrefix(name, "own.") && verdict != "allowed" && user == "user":
				t.Errorf("in a network of its own, %s: %q", name, verdict) // root has to do without: it cannot map itself
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

// The control: with the agent's capabilities a program can.
//
//suite:part hostile
func TestAttackUplinkControl(t *testing.T) {
	needRoot(t)
	f := linked(t, "open", "capabilities").facts("root", "link")
	for _, name := range meddling {
		if f[name] != "allowed" {
			t.Errorf("%s: %q, and the capabilities are there", name, f[name])
		}
		attack.Seen("NET-12", name, "no capabilities", f[name] == "allowed")
	}
}
