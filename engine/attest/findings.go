// Package attest determines how strictly the instance of a sandbox enforces each area of
// its isolation: by the report of the host, and by a probe inside the instance.
package attest

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Finding is one finding about an area from inside a sandbox. The guest may
// have forged it, so a finding can lower the level that the host reports but
// never raise it.
type Finding struct {
	area  brig.Area
	level brig.Level // the level to which the area is lowered; empty for mere evidence
	text  string
}

// rootThreads is the permitted excess of root's process limit over the
// configured one: gVisor counts the agent's threads as root's (see
// guest/agent).
const rootThreads = 64

// findingsOf returns the findings that follow from a posture, for an instance
// with limits l that has a network interface if uplink is true. If build is true, root has the
// rights of a build.
func findingsOf(p wire.Posture, l brig.Limits, uplink, build bool) []Finding {
	who := "user"
	rights, noMore := uint64(0), "programs have no capability"
	processes := uint64(l.Processes)
	if p.UID == 0 {
		who, processes = "root", processes+rootThreads
		if build {
			rights, noMore = wire.BuildRights, "programs have no capability but those of a build"
		}
	}
	var out []Finding
	look := func(a brig.Area, bad bool, level brig.Level, gap, fine string) {
		if bad {
			out = append(out, Finding{a, level, gap + ", as " + who})
		} else {
			out = append(out, Finding{a, "", fine + ", as " + who})
		}
	}
	out = append(out, Finding{brig.AreaIsolation, "", "inside the kernel is " + clip(p.Kernel)})
	look(brig.AreaIsolation, p.Capabilities&^rights != 0, brig.LevelGaps, "programs have capabilities", noMore)
	look(brig.AreaIsolation, !p.NoNewPrivs, brig.LevelGaps, "programs may gain privileges", "programs cannot gain privileges")
	look(brig.AreaIsolation, len(p.Writable) > 0, brig.LevelGaps, "the image's own files can be written to at "+clip(strings.Join(p.Writable, " ")), "the image's own files are read-only")
	look(brig.AreaDisk, p.Disk <= 0 || p.Disk > l.Disk+brig.MiB, brig.LevelNone, "the root file system is not of the limit's size", "the root file system is of the limit's size")
	look(brig.AreaProcesses, p.Processes > processes, brig.LevelNone, "more processes are allowed than the limit", "no more processes are allowed than the limit")
	look(brig.AreaOpenFiles, p.OpenFiles > uint64(l.OpenFiles), brig.LevelNone, "more open files are allowed than the limit", "no more open files are allowed than the limit")
	maxInterfaces := 0
	if uplink {
		maxInterfaces = 1
	}
	look(brig.AreaEgress, len(p.Interfaces) > maxInterfaces, brig.LevelGaps, "there are network interfaces: "+clip(strings.Join(p.Interfaces, " ")), "there is no network interface but the loopback and an uplink that was given")
	for _, what := range slices.Concat(p.Reached, p.Resolved) {
		look(brig.AreaEgress, true, brig.LevelNone, "there was an answer from "+clip(what)+", which no rule allows", "")
	}
	for _, what := range slices.Sorted(maps.Keys(p.Failed)) {
		look(brig.AreaEgress, false, "", "", "no answer from "+clip(what)+" ("+clip(p.Failed[what])+")")
	}
	return out
}

// probedControls returns the areas that findingsOf reports on.
func probedControls() []brig.Area {
	return []brig.Area{brig.AreaIsolation, brig.AreaProcesses, brig.AreaOpenFiles, brig.AreaDisk, brig.AreaEgress}
}

// UnprobedFindings returns the findings for an instance that could not be probed from
// inside.
func UnprobedFindings() (out []Finding) {
	for _, a := range probedControls() {
		out = append(out, Finding{a, brig.LevelGaps, "it could not be checked from inside the sandbox"})
	}
	return out
}

// Apply applies the findings to the levels that the host reports. It
// lowers levels and never raises them, and does not modify host.
func Apply(host map[brig.Area]brig.Enforcement, findings []Finding, now time.Time) map[brig.Area]brig.Enforcement {
	out := maps.Clone(host)
	for _, r := range findings {
		e, ok := out[r.area]
		if !ok {
			continue
		}
		if r.level == "" {
			e.AddEvidence("%s", r.text)
		} else {
			e.Lower(r.level, "%s", r.text)
		}
		out[r.area] = e
	}
	for a, e := range out {
		e.At = now
		out[a] = e
	}
	return out
}

// LowerTo lowers the reported levels of an instance to its provider's claims for all instances.
func LowerTo(reported, claimed map[brig.Area]brig.Enforcement) map[brig.Area]brig.Enforcement {
	out := map[brig.Area]brig.Enforcement{}
	for _, a := range brig.Areas {
		e, ok := reported[a]
		c, claims := claimed[a]
		if !claims {
			c.Level = brig.LevelNone
		}
		switch {
		case !ok:
			e = brig.Enforcement{Level: brig.LevelNone, How: c.How}
			e.Lower(brig.LevelNone, "the machine says nothing of it")
		case !c.Level.Meets(e.Level):
			e.Lower(c.Level, "the provider does not claim more")
		}
		out[a] = e
	}
	return out
}

// blockedTargets returns the addresses and names that must not respond to a
// sandbox with the given rules. own are addresses that the host itself listens
// on.
func blockedTargets(rules *brig.Egress, own ...netip.AddrPort) (out wire.Look) {
	for _, s := range []string{"192.0.2.1:443", "169.254.169.254:80", "[2001:db8::1]:443"} {
		own = append(own, netip.MustParseAddrPort(s))
	}
	for _, a := range own {
		if verdict, _ := rules.Numbered(a.Addr(), int(a.Port())); verdict == brig.Denied {
			out.Dial = append(out.Dial, a.String())
		}
	}
	for _, name := range []string{"example.com", "example.net", "example.org"} {
		if !rules.Answers(name) {
			out.Resolve = []string{name} // an existing name, so that a leak is visible
			break
		}
	}
	return out
}

// hostAddressText replaces an address of the host in evidence.
const hostAddressText = "an address of the server"

// redactHost returns the posture that a probe reported, without the host's own
// addresses.
func redactHost(p wire.Posture, own []netip.AddrPort) wire.Posture {
	var pairs []string
	for _, a := range own {
		pairs = append(pairs, a.String(), hostAddressText, a.Addr().String(), hostAddressText)
	}
	hide := strings.NewReplacer(pairs...)
	p.Reached, p.Resolved = slices.Clone(p.Reached), slices.Clone(p.Resolved)
	for _, list := range [][]string{p.Reached, p.Resolved} {
		for i := range list {
			list[i] = hide.Replace(list[i])
		}
	}
	failed := map[string]string{}
	for what, reason := range p.Failed {
		failed[hide.Replace(what)] = hide.Replace(reason)
	}
	p.Failed = failed
	return p
}

// clip shortens a text from the guest.
func clip(s string) string { return brig.Clip(s, 80) }
