package attest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// cleanPosture returns a posture without defects for the default limits,
// modified by change.
func cleanPosture(change func(*wire.Posture)) wire.Posture {
	p := wire.Posture{UID: 1000, NoNewPrivs: true, Disk: brig.GiB, Processes: 256, OpenFiles: 1024}
	if change != nil {
		change(&p)
	}
	return p
}

func TestPostureFindingsLowerAreas(t *testing.T) {
	limits := brig.DefaultLimitRange().Default
	for what, c := range map[string]struct {
		posture wire.Posture
		uplink  bool
		area    brig.Area // the area that is lowered
		want    brig.Level
	}{
		"nothing is wrong":       {cleanPosture(nil), false, "", ""},
		"capabilities":           {cleanPosture(func(p *wire.Posture) { p.Capabilities = 1 }), false, brig.AreaIsolation, brig.LevelGaps},
		"privileges":             {cleanPosture(func(p *wire.Posture) { p.NoNewPrivs = false }), false, brig.AreaIsolation, brig.LevelGaps},
		"the host's files":       {cleanPosture(func(p *wire.Posture) { p.Writable = []string{"/usr"} }), false, brig.AreaIsolation, brig.LevelGaps},
		"a larger disk":          {cleanPosture(func(p *wire.Posture) { p.Disk *= 2 }), false, brig.AreaDisk, brig.LevelNone},
		"a disk without a size":  {cleanPosture(func(p *wire.Posture) { p.Disk = 0 }), false, brig.AreaDisk, brig.LevelNone},
		"more processes":         {cleanPosture(func(p *wire.Posture) { p.Processes++ }), false, brig.AreaProcesses, brig.LevelNone},
		"the agent's threads":    {cleanPosture(func(p *wire.Posture) { p.UID, p.Processes = 0, 256+rootThreads }), false, "", ""},
		"more than those":        {cleanPosture(func(p *wire.Posture) { p.UID, p.Processes = 0, 256+rootThreads+1 }), false, brig.AreaProcesses, brig.LevelNone},
		"any number of files":    {cleanPosture(func(p *wire.Posture) { p.OpenFiles = 1<<64 - 1 }), false, brig.AreaOpenFiles, brig.LevelNone},
		"an interface":           {cleanPosture(func(p *wire.Posture) { p.Interfaces = []string{"eth0"} }), false, brig.AreaEgress, brig.LevelGaps},
		"an uplink":              {cleanPosture(func(p *wire.Posture) { p.Interfaces = []string{"eth0"} }), true, "", ""},
		"more than an uplink":    {cleanPosture(func(p *wire.Posture) { p.Interfaces = []string{"eth0", "eth1"} }), true, brig.AreaEgress, brig.LevelGaps},
		"an address answered":    {cleanPosture(func(p *wire.Posture) { p.Reached = []string{"192.0.2.1:443"} }), false, brig.AreaEgress, brig.LevelNone},
		"a name was found":       {cleanPosture(func(p *wire.Posture) { p.Resolved = []string{"example.com"} }), true, brig.AreaEgress, brig.LevelNone},
		"nothing answered":       {cleanPosture(func(p *wire.Posture) { p.Failed = map[string]string{"example.com": "no such host"} }), true, "", ""},
		"a guest that is boring": {wire.Posture{UID: 1000, NoNewPrivs: true, Disk: 1, Processes: 1, OpenFiles: 1}, false, "", ""},
	} {
		t.Run(what, func(t *testing.T) {
			host := map[brig.Area]brig.Enforcement{}
			for _, a := range brig.Areas {
				host[a] = brig.Enforcement{Level: brig.LevelBoundary}
			}
			got := Apply(host, findingsOf(c.posture, limits, c.uplink, false), time.Unix(1, 0))
			if built := Apply(host, findingsOf(c.posture, limits, c.uplink, true), time.Unix(1, 0)); !maps.EqualFunc(got, built, func(a, b brig.Enforcement) bool { return a.Level == b.Level }) && c.posture.UID != 0 {
				t.Errorf("the rights of a build change what holds for a user: %+v", built)
			}
			for _, a := range brig.Areas {
				want := brig.LevelBoundary
				if a == c.area {
					want = c.want
				}
				if got[a].Level != want || (want != brig.LevelBoundary) != (len(got[a].Gaps) > 0) || got[a].At.IsZero() {
					t.Errorf("%s is %+v, want %s", a, got[a], want)
				}
				if len(host[a].Gaps)+len(host[a].Evidence) > 0 {
					t.Errorf("the host's own word on %s was changed: %+v", a, host[a])
				}
			}
		})
	}
}

// In a sandbox that builds a template, root may have the rights of a build, and no others. The
// other users may have none.
func TestBuildRightsAreNoGap(t *testing.T) {
	host := map[brig.Area]brig.Enforcement{brig.AreaIsolation: {Level: brig.LevelBoundary}}
	for _, c := range []struct {
		uid    int
		rights uint64
		build  bool
		gap    bool
	}{
		{0, wire.BuildRights, true, false},
		{0, 0, true, false},
		{0, wire.BuildRights | 1<<21, true, true}, // CAP_SYS_ADMIN
		{1000, wire.BuildRights, true, true},
		{1000, 0, true, false},
		{0, wire.BuildRights, false, true},
	} {
		p := cleanPosture(func(p *wire.Posture) { p.UID, p.Capabilities = c.uid, c.rights })
		got := Apply(host, findingsOf(p, brig.DefaultLimitRange().Default, false, c.build), time.Unix(1, 0))[brig.AreaIsolation]
		if gap := got.Level != brig.LevelBoundary; gap != c.gap {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// A report of the guest never raises the level that the host reports.
func TestGuestCannotRaiseEnforcement(t *testing.T) {
	for _, level := range brig.Levels {
		host := map[brig.Area]brig.Enforcement{}
		for _, a := range brig.Areas {
			host[a] = brig.Enforcement{Level: level}
		}
		for _, p := range []wire.Posture{cleanPosture(nil), {}, cleanPosture(func(p *wire.Posture) { p.Capabilities, p.Disk, p.Reached = 7, 1<<60, []string{"x"} })} {
			for a, e := range Apply(host, findingsOf(p, brig.DefaultLimitRange().Default, false, false), time.Now()) {
				if !level.Meets(e.Level) {
					t.Errorf("%s was %s and is %s after %+v", a, level, e.Level, p)
				}
			}
		}
	}
}

func TestLowerToKeepsLowerLevel(t *testing.T) {
	for _, c := range []struct{ have, claimed, want brig.Level }{
		{brig.LevelBoundary, brig.LevelBoundary, brig.LevelBoundary},
		{brig.LevelBoundary, brig.LevelGaps, brig.LevelGaps},
		{brig.LevelBoundary, "", brig.LevelNone},
		{brig.LevelGaps, brig.LevelBoundary, brig.LevelGaps},
		{"", brig.LevelBoundary, brig.LevelNone},
	} {
		have, claimed := map[brig.Area]brig.Enforcement{}, map[brig.Area]brig.Enforcement{}
		if c.have != "" {
			have[brig.AreaMemory] = brig.Enforcement{Level: c.have}
		}
		if c.claimed != "" {
			claimed[brig.AreaMemory] = brig.Enforcement{Level: c.claimed}
		}
		if got := LowerTo(have, claimed)[brig.AreaMemory].Level; got != c.want {
			t.Errorf("%q of a provider that claims %q is %s, want %s", c.have, c.claimed, got, c.want)
		}
	}
}

// The probe does not contact destinations that the rules allow.
func TestProbeAvoidsAllowedDestinations(t *testing.T) {
	own := netip.MustParseAddrPort("203.0.113.9:4000")
	for what, c := range map[string]struct {
		rules brig.Egress
		dial  int
		names []string
	}{
		"nothing":     {brig.Egress{}, 4, []string{"example.com"}},
		"one network": {brig.Egress{Rules: []brig.EgressRule{{CIDR: "192.0.2.0/24"}}}, 3, []string{"example.com"}},
		"everything":  {brig.Egress{Rules: []brig.EgressRule{{CIDR: "0.0.0.0/0"}, {Host: "*"}}}, 2, nil},
		"a name":      {brig.Egress{Rules: []brig.EgressRule{{Host: "example.com"}}}, 4, []string{"example.net"}},
	} {
		look := blockedTargets(&c.rules, own)
		if len(look.Dial) != c.dial || !slices.Equal(look.Resolve, c.names) {
			t.Errorf("%s: %+v, want %d addresses and %v", what, look, c.dial, c.names)
		}
	}
}

// Findings from a redacted posture do not contain the host's own addresses. The
// control without redaction contains them.
func TestFindingsRedactHostAddresses(t *testing.T) {
	own := netip.MustParseAddrPort("203.0.113.9:4000")
	p := wire.Posture{
		Reached: []string{own.String()}, Resolved: []string{"example.com"},
		Failed: map[string]string{own.String(): "dial tcp 203.0.113.9:4000: no route", "192.0.2.1:443": "no route"},
	}
	redacted := fmt.Sprint(findingsOf(redactHost(p, []netip.AddrPort{own}), brig.DefaultLimitRange().Default, true, false))
	if strings.Contains(redacted, "203.0.113.9") || !strings.Contains(redacted, "192.0.2.1") || !strings.Contains(redacted, hostAddressText) {
		t.Error(redacted)
	}
	if control := fmt.Sprint(findingsOf(p, brig.DefaultLimitRange().Default, true, false)); !strings.Contains(control, "203.0.113.9") {
		t.Error("the control:", control)
	}
}
