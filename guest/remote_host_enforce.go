package guest

import (
	"maps"
	"time"

	"github.com/brig-run/brig"
)

// ProcessEnforcement returns the enforcement levels of instances that are plain
// processes. Few limits are enforced, and none is a security boundary. where
// names the system that the instances share with other processes.
func ProcessEnforcement(where string) map[brig.Area]brig.Enforcement {
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
	gaps(brig.AreaTime, "the server's clock ends an execution, the supervisor's a machine", "the supervisor is a process of the machine that is not isolated from")
	return out
}

// MarkObserved sets the time at which the enforcement of an instance was observed.
func MarkObserved(have map[brig.Area]brig.Enforcement) map[brig.Area]brig.Enforcement {
	out := maps.Clone(have)
	for a, e := range out {
		e.At = time.Now().UTC()
		out[a] = e
	}
	return out
}
