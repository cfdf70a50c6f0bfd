package gvisor

import (
	"maps"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/cgroup"
)

// rootHint is the hint for hosts on which no cgroup can be created.
const rootHint = "run the server as root, on a machine where it can make cgroups with the memory, cpu and pids controllers"

// enforces returns the enforcement levels of this provider for the current user
// and machine.
func (p *Provider) enforces() map[brig.Area]brig.Enforcement {
	kernel := func(how string) brig.Enforcement { return brig.Enforcement{Level: brig.LevelBoundary, How: how} }
	out := map[brig.Area]brig.Enforcement{
		brig.AreaIsolation: kernel("gVisor's kernel (systrap), in namespaces of its own and behind a seccomp filter; the image is read-only"),
		brig.AreaProcesses: kernel("gVisor's kernel counts the processes of each user"),
		brig.AreaOpenFiles: kernel("gVisor's kernel counts the open files of each process"),
		brig.AreaDisk:      kernel("gVisor's kernel gives the writable layer a hard size"),
		brig.AreaOutput:    kernel("the host keeps no more of it than the limit"),
		brig.AreaTime:      kernel("the shim's clock ends the machine, the server's an execution"),
		brig.AreaEgress:    kernel("there is no network but an uplink, whose other end is this server's proxy"),
	}
	if p.cgroups {
		in := "cgroup " + cgroup.Mode()
		memory, cpus := kernel(in+" limits memory; who exceeds it is killed"), kernel(in+" limits the time of processors")
		processes := out[brig.AreaProcesses]
		processes.How += "; " + in + " bounds the threads on the host"
		if !cgroup.LimitsSwap() {
			memory.Lower(brig.LevelGaps, "this machine's kernel does not count what is swapped")
			memory.Help = "turn swap off, or boot with swapaccount=1"
		}
		p.controllers(&memory, &cpus)
		out[brig.AreaMemory], out[brig.AreaCPUs], out[brig.AreaProcesses] = memory, cpus, processes
		return out
	}
	memory := kernel("the shim measures the machine's memory, and kills what uses too much")
	memory.Lower(brig.LevelGaps, "memory is measured ten times a second, not limited by the kernel (no cgroup)")
	cpus := kernel("the machine's threads are bound to some processors")
	cpus.Lower(brig.LevelGaps, "processors are whole ones, shared with whatever else runs on them (no cgroup)")
	memory.Help, cpus.Help = rootHint, rootHint
	out[brig.AreaMemory], out[brig.AreaCPUs] = memory, cpus
	return out
}

// controllers lowers the enforcement levels of limits that were not effective
// in the test group, because a kernel may have a hierarchy without a
// controller.
func (p *Provider) controllers(memory, cpus *brig.Enforcement) {
	if p.held.Memory == 0 {
		memory.Lower(brig.LevelNone, "this machine has no memory controller")
		memory.Help = rootHint
	}
	if p.held.CPUs == 0 {
		cpus.Lower(brig.LevelNone, "this machine has no cpu controller")
		cpus.Help = rootHint
	}
}

// Capabilities implements brig.Provider.
func (p *Provider) Capabilities() brig.Capabilities {
	return brig.Capabilities{Name: Name, Isolation: "gvisor", Uplinks: true, Saves: p.canSave(), BuildRights: true, Volumes: p.canMountVolumes(), Enforces: maps.Clone(p.enforcement)}
}
