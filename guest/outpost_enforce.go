package guest

import (
	"maps"
	"time"

	"github.com/brig-run/brig"
)

// ProcessesEnforce is what machines of plain processes enforce: little, and
// nothing of it is a boundary. where is what they share with others.
func ProcessesEnforce(where string) map[brig.Area]brig.Enforcement {
	out := map[brig.Area]brig.Enforcement{}
	none := func(a brig.Area, gap string) {
		e := brig.Enforcement{Level: brig.LevelNone, How: "nothing", Help: "use a provider that isolates"}
		e.Lower(brig.LevelNone, "%s", gap)
		out[a] = e
	}
	gaps := func(a brig.Area, how, gap string) {
		e := brig.Enforcement{Level: brig.LevelBoundary, How: how, Help: "use a provider that isolates"}
		e.Lower(brig.LevelGaps, "%s", gap)
		out[a] = e
	}
	none(brig.AreaIsolation, "programs share the kernel and the files of "+where)
	none(brig.AreaMemory, "a program may use all the memory that there is")
	none(brig.AreaCPUs, "a program may use all processors")
	none(brig.AreaDisk, "a program may fill the disk")
	none(brig.AreaWorkspace, "what is sealed can be reached by other ways of the same machine")
	gaps(brig.AreaProcesses, "RLIMIT_NPROC of the account", "it counts everything of the account on the machine, and not what root runs")
	gaps(brig.AreaOpenFiles, "RLIMIT_NOFILE of each process", "it is a limit of the kernel that is not isolated from")
	gaps(brig.AreaEgress, "a network namespace without any interface but an uplink", "it is one of the kernel that is not isolated from")
	gaps(brig.AreaSecrets, "placeholders are exchanged outside, at the uplink's other end", "it is as good as the network namespace")
	out[brig.AreaOutput] = brig.Enforcement{Level: brig.LevelBoundary, How: "the server keeps no more of it than the limit"}
	gaps(brig.AreaTime, "the server's clock ends an execution, the keeper's a machine", "the keeper is a process of the machine that is not isolated from")
	return out
}

// Seen adds when it was that a machine enforced what it does.
func Seen(have map[brig.Area]brig.Enforcement) map[brig.Area]brig.Enforcement {
	out := maps.Clone(have)
	for a, e := range out {
		e.At = time.Now().UTC()
		out[a] = e
	}
	return out
}
