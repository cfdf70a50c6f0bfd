package engine

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// remark is what was found out about an area from inside a sandbox. The guest
// may have made it up, so it can lower what the host says and never raise it.
type remark struct {
	area  brig.Area
	level brig.Level // that the area is lowered to; empty for evidence alone
	text  string
}

// rootThreads is by how much root's limit of processes may be above what was
// asked for: gVisor counts the agent's threads as root's (see guest/agent).
const rootThreads = 64

// judge says what a posture means for a machine with some limits, which has a
// network interface if uplink.
func judge(p wire.Posture, l brig.Limits, uplink bool) []remark {
	who := "user"
	processes := uint64(l.Processes)
	if p.UID == 0 {
		who, processes = "root", processes+rootThreads
	}
	var out []remark
	look := func(a brig.Area, bad bool, level brig.Level, gap, fine string) {
		if bad {
			out = append(out, remark{a, level, gap + ", as " + who})
		} else {
			out = append(out, remark{a, "", fine + ", as " + who})
		}
	}
	out = append(out, remark{brig.AreaIsolation, "", "inside the kernel is " + clip(p.Kernel)})
	look(brig.AreaIsolation, p.Capabilities != 0, brig.LevelGaps, "programs have capabilities", "programs have no capability")
	look(brig.AreaIsolation, !p.NoNewPrivs, brig.LevelGaps, "programs may gain privileges", "programs cannot gain privileges")
	look(brig.AreaIsolation, len(p.Writable) > 0, brig.LevelGaps, "the image's own files can be written to at "+clip(strings.Join(p.Writable, " ")), "the image's own files are read-only")
	look(brig.AreaDisk, p.Disk <= 0 || p.Disk > l.Disk+brig.MiB, brig.LevelNone, "the root file system is not of the limit's size", "the root file system is of the limit's size")
	look(brig.AreaProcesses, p.Processes > processes, brig.LevelNone, "more processes are allowed than the limit", "no more processes are allowed than the limit")
	look(brig.AreaOpenFiles, p.OpenFiles > uint64(l.OpenFiles), brig.LevelNone, "more open files are allowed than the limit", "no more open files are allowed than the limit")
	most := 0
	if uplink {
		most = 1
	}
	look(brig.AreaEgress, len(p.Interfaces) > most, brig.LevelGaps, "there are network interfaces: "+clip(strings.Join(p.Interfaces, " ")), "there is no network interface but the loopback and an uplink that was given")
	for _, what := range slices.Concat(p.Reached, p.Resolved) {
		look(brig.AreaEgress, true, brig.LevelNone, "there was an answer from "+clip(what)+", which no rule allows", "")
	}
	for _, what := range slices.Sorted(maps.Keys(p.Failed)) {
		look(brig.AreaEgress, false, "", "", "no answer from "+clip(what)+" ("+clip(p.Failed[what])+")")
	}
	return out
}

// insideAreas are those of which judge says something.
func insideAreas() []brig.Area {
	return []brig.Area{brig.AreaIsolation, brig.AreaProcesses, brig.AreaOpenFiles, brig.AreaDisk, brig.AreaEgress}
}

// blind is what is remarked where nobody could look from inside.
func blind() (out []remark) {
	for _, a := range insideAreas() {
		out = append(out, remark{a, brig.LevelGaps, "nobody could look at it from inside"})
	}
	return out
}

// heed returns what the host says, with remarks. It lowers and never raises,
// and what it is given stays as it is.
func heed(host map[brig.Area]brig.Enforcement, remarks []remark, now time.Time) map[brig.Area]brig.Enforcement {
	out := maps.Clone(host)
	for _, r := range remarks {
		e, ok := out[r.area]
		if !ok {
			continue
		}
		if r.level == "" {
			e.Saw("%s", r.text)
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

// atMost lowers what a machine is said to enforce to what its provider says of
// all of them.
func atMost(have, claimed map[brig.Area]brig.Enforcement) map[brig.Area]brig.Enforcement {
	out := map[brig.Area]brig.Enforcement{}
	for _, a := range brig.Areas {
		e, ok := have[a]
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

// forbidden is what a sandbox with some rules must get no answer from, beside
// what the host listens on itself.
func forbidden(rules *brig.Egress, own ...netip.AddrPort) (out wire.Look) {
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
			out.Resolve = []string{name} // one that there is: a leak would be seen
			break
		}
	}
	return out
}

// ownAddress is one of this host's that others could reach, or its loopback.
func ownAddress() netip.Addr {
	list, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range list {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
				if found, ok := netip.AddrFromSlice(n.IP.To4()); ok {
					return found
				}
			}
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
