package engine

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// good is a posture in which nothing is wrong, for good's limits.
func good(change func(*wire.Posture)) wire.Posture {
	p := wire.Posture{UID: 1000, NoNewPrivs: true, Disk: brig.GiB, Processes: 256, OpenFiles: 1024}
	if change != nil {
		change(&p)
	}
	return p
}

func TestJudge(t *testing.T) {
	limits := brig.DefaultBounds().Default
	for what, c := range map[string]struct {
		posture wire.Posture
		uplink  bool
		area    brig.Area // the one that is lowered
		want    brig.Level
	}{
		"nothing is wrong":       {good(nil), false, "", ""},
		"capabilities":           {good(func(p *wire.Posture) { p.Capabilities = 1 }), false, brig.AreaIsolation, brig.LevelGaps},
		"privileges":             {good(func(p *wire.Posture) { p.NoNewPrivs = false }), false, brig.AreaIsolation, brig.LevelGaps},
		"the host's files":       {good(func(p *wire.Posture) { p.Writable = []string{"/usr"} }), false, brig.AreaIsolation, brig.LevelGaps},
		"a larger disk":          {good(func(p *wire.Posture) { p.Disk *= 2 }), false, brig.AreaDisk, brig.LevelNone},
		"a disk without a size":  {good(func(p *wire.Posture) { p.Disk = 0 }), false, brig.AreaDisk, brig.LevelNone},
		"more processes":         {good(func(p *wire.Posture) { p.Processes++ }), false, brig.AreaProcesses, brig.LevelNone},
		"the agent's threads":    {good(func(p *wire.Posture) { p.UID, p.Processes = 0, 256+rootThreads }), false, "", ""},
		"more than those":        {good(func(p *wire.Posture) { p.UID, p.Processes = 0, 256+rootThreads+1 }), false, brig.AreaProcesses, brig.LevelNone},
		"any number of files":    {good(func(p *wire.Posture) { p.OpenFiles = 1<<64 - 1 }), false, brig.AreaOpenFiles, brig.LevelNone},
		"an interface":           {good(func(p *wire.Posture) { p.Interfaces = []string{"eth0"} }), false, brig.AreaEgress, brig.LevelGaps},
		"an uplink":              {good(func(p *wire.Posture) { p.Interfaces = []string{"eth0"} }), true, "", ""},
		"more than an uplink":    {good(func(p *wire.Posture) { p.Interfaces = []string{"eth0", "eth1"} }), true, brig.AreaEgress, brig.LevelGaps},
		"an address answered":    {good(func(p *wire.Posture) { p.Reached = []string{"192.0.2.1:443"} }), false, brig.AreaEgress, brig.LevelNone},
		"a name was found":       {good(func(p *wire.Posture) { p.Resolved = []string{"example.com"} }), true, brig.AreaEgress, brig.LevelNone},
		"nothing answered":       {good(func(p *wire.Posture) { p.Failed = map[string]string{"example.com": "no such host"} }), true, "", ""},
		"a guest that is boring": {wire.Posture{UID: 1000, NoNewPrivs: true, Disk: 1, Processes: 1, OpenFiles: 1}, false, "", ""},
	} {
		t.Run(what, func(t *testing.T) {
			host := map[brig.Area]brig.Enforcement{}
			for _, a := range brig.Areas {
				host[a] = brig.Enforcement{Level: brig.LevelBoundary}
			}
			got := heed(host, judge(c.posture, limits, c.uplink), time.Unix(1, 0))
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

// Nothing that a guest can say raises what the host knows.
func TestGuestRaisesNothing(t *testing.T) {
	for _, level := range brig.Levels {
		host := map[brig.Area]brig.Enforcement{}
		for _, a := range brig.Areas {
			host[a] = brig.Enforcement{Level: level}
		}
		for _, p := range []wire.Posture{good(nil), {}, good(func(p *wire.Posture) { p.Capabilities, p.Disk, p.Reached = 7, 1<<60, []string{"x"} })} {
			for a, e := range heed(host, judge(p, brig.DefaultBounds().Default, false), time.Now()) {
				if !level.Meets(e.Level) {
					t.Errorf("%s was %s and is %s after %+v", a, level, e.Level, p)
				}
			}
		}
	}
}

func TestAtMost(t *testing.T) {
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
		if got := atMost(have, claimed)[brig.AreaMemory].Level; got != c.want {
			t.Errorf("%q of a provider that claims %q is %s, want %s", c.have, c.claimed, got, c.want)
		}
	}
}

// A probe never asks for what the rules allow.
func TestForbidden(t *testing.T) {
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
		look := forbidden(&c.rules, own)
		if len(look.Dial) != c.dial || !slices.Equal(look.Resolve, c.names) {
			t.Errorf("%s: %+v, want %d addresses and %v", what, look, c.dial, c.names)
		}
	}
}
