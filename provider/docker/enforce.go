package docker

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
)

// chooseRuntime determines the runtime of containers. It recognizes gVisor by
// the runtime's program, not by its name.
func (p *Provider) chooseRuntime() error {
	name := p.Runtime
	if name == "" {
		name = p.info.DefaultRuntime
	}
	r, ok := p.info.Runtimes[name]
	if !ok {
		var has []string
		for k := range p.info.Runtimes {
			has = append(has, k)
		}
		slices.Sort(has)
		return brig.InvalidField("runtime", "the engine has no runtime %q", brig.Clip(name, 40)).WithHint("use one of: %v", has)
	}
	p.gvisor = strings.HasPrefix(path.Base(r.Path), "runsc") || strings.HasPrefix(r.Type, "io.containerd.runsc.")
	return nil
}

// enforces returns the enforcement levels of this engine.
func (p *Provider) enforces() map[brig.Area]brig.Enforcement {
	kernel := func(how string) brig.Enforcement { return brig.Enforcement{Level: brig.LevelBoundary, How: how} }
	isolation := kernel("gVisor's kernel, as the engine's runtime; without capabilities, and the image is read-only")
	if !p.gvisor {
		isolation = kernel("namespaces of the host's kernel, without capabilities, the engine's seccomp profile")
		isolation.Lower(brig.LevelGaps, "the host's kernel is the guest's: this is hardening, not a tenant boundary")
		isolation.Help = "have the engine use runsc, or use the gvisor provider"
		if !p.hasSeccomp() {
			isolation.Lower(brig.LevelGaps, "the engine has no seccomp profile")
		}
	}
	out := map[brig.Area]brig.Enforcement{
		brig.AreaIsolation: isolation,
		brig.AreaOpenFiles: kernel("the kernel counts the open files of each process"),
		brig.AreaOutput:    kernel("the host keeps no more of it than the limit"),
		brig.AreaEgress:    kernel("there is no network but a loopback and, if it was made with rules, an uplink, whose other end is this server's proxy"),
	}
	needs := func(a brig.Area, has bool, how, lacks string) {
		e := kernel(how)
		if !has {
			e.Lower(brig.LevelNone, "%s", lacks)
			e.Help = "let the engine have the memory, cpu and pids controllers"
		}
		out[a] = e
	}
	group := "the engine's cgroup (v" + strings.TrimPrefix(p.info.CgroupVersion, "v") + ") "
	needs(brig.AreaMemory, p.info.MemoryLimit, group+"limits memory, swap included; who exceeds it is killed", "the engine cannot limit memory")
	needs(brig.AreaCPUs, p.info.CPUCfsQuota, group+"limits the time of processors", "the engine cannot limit processors")
	needs(brig.AreaProcesses, p.gvisor || p.info.PidsLimit, group+"counts processes and threads, and "+fmt.Sprint(agentTasks)+" more for the agent", "the engine cannot limit processes")
	if p.gvisor {
		out[brig.AreaProcesses] = kernel("gVisor's kernel counts the processes of each user")
	}
	if m := out[brig.AreaMemory]; p.info.MemoryLimit && !p.info.SwapLimit {
		m.Lower(brig.LevelGaps, "the engine's kernel does not count what is swapped")
		m.Help = "turn swap off at the engine, or boot it with swapaccount=1"
		out[brig.AreaMemory] = m
	}
	disk := kernel("the image is read-only; what is written is in file systems in memory, which have a hard size")
	if p.Storage == storageLayer {
		disk = kernel("the engine's storage driver gives the container's layer a hard size")
		disk.Lower(brig.LevelGaps, "the engine's own files in /etc (hosts, hostname, resolv.conf) are not in that layer")
		disk.Help = "set the provider's storage to memory"
	}
	out[brig.AreaDisk] = disk
	clock := kernel("the server's clock has the engine end the machine, and ends an execution")
	clock.Lower(brig.LevelGaps, "while no server runs only the agent inside ends a machine whose lease is over")
	out[brig.AreaTime] = clock
	return out
}

func (p *Provider) hasSeccomp() bool {
	return slices.ContainsFunc(p.info.SecurityOptions, func(s string) bool {
		return strings.Contains(s, "seccomp") && !strings.Contains(s, "unconfined")
	})
}

// enforcementNotes returns notes for the caller about the restrictions of every
// sandbox.
func (p *Provider) enforcementNotes(l brig.Limits) (out []string) {
	if !p.gvisor {
		out = append(out, "isolation: it shares the kernel of the engine's machine (runc): hardening, not a tenant boundary")
	}
	if p.Storage == storageMemory {
		out = append(out, fmt.Sprintf("disk: /workspace, /home/user, /root and /var/tmp are in memory, at most %s in all; the rest is read-only",
			brig.FormatBytes(min(l.Disk, l.Memory/2))))
	}
	return out
}

// Enforced implements brig.Instance. It reports the actual state of the
// container at the engine, not the requested one.
func (i *instance) Enforced(ctx context.Context) (map[brig.Area]brig.Enforcement, error) {
	look, err := i.p.api.ContainerInspect(ctx, i.container, client.ContainerInspectOptions{})
	if isNotFound(err) || err == nil && !isRunning(look.Container) {
		return nil, errEnded
	}
	if err != nil {
		return nil, engineError(err)
	}
	return i.p.inspectEnforcement(look.Container, i.currentOrder()), nil
}

// inspectEnforcement compares a container's state with the required
// protections.
func (p *Provider) inspectEnforcement(c container.InspectResponse, o order) map[brig.Area]brig.Enforcement {
	l := o.Limits
	out, now := map[brig.Area]brig.Enforcement{}, time.Now().UTC()
	for a, e := range p.enforcement {
		e.At = now
		out[a] = e
	}
	h := c.HostConfig
	look := func(a brig.Area, ok bool, level brig.Level, gap, saw string, args ...any) {
		e := out[a]
		if ok {
			e.AddEvidence(saw, args...)
		} else {
			e.Lower(level, "%s", gap)
		}
		out[a] = e
	}
	have := func(cap string) bool {
		cap = strings.TrimPrefix(cap, "CAP_")
		return slices.Contains(p.agentCaps(), cap) || o.Uplink && cap == linkCap
	}
	extra := slices.DeleteFunc(slices.Clone(h.CapAdd), have)
	look(brig.AreaIsolation, !h.Privileged && slices.Contains(h.CapDrop, "ALL") && len(extra) == 0, brig.LevelNone,
		"the container has additional capabilities", "the engine says: capabilities dropped, but %d for the agent", len(h.CapAdd))
	look(brig.AreaIsolation, slices.Contains(h.SecurityOpt, "no-new-privileges"), brig.LevelGaps,
		"programs may gain privileges", "the engine says: no new privileges")
	look(brig.AreaIsolation, !slices.ContainsFunc(h.SecurityOpt, func(s string) bool { return strings.Contains(s, "unconfined") }), brig.LevelGaps,
		"a security profile is disabled", "the engine says: profiles %v", p.info.SecurityOptions)
	look(brig.AreaIsolation, !h.PidMode.IsHost() && !h.IpcMode.IsHost() && !h.UTSMode.IsHost() && len(h.Binds) == 0 && p.hasOnlyLink(h, o.Uplink) && hasOnlyVolume(c), brig.LevelNone,
		"the container shares a namespace or directory with its host", "the engine says: no namespace or directory of the host, %d devices; runtime %s", len(h.Devices), h.Runtime)
	look(brig.AreaMemory, h.Memory > 0 && h.Memory <= l.Memory && h.MemorySwap == h.Memory, brig.LevelNone,
		"the container lacks the memory limit", "the engine says: memory of %d with swap", h.Memory)
	look(brig.AreaCPUs, h.NanoCPUs > 0 && h.NanoCPUs <= int64(l.CPUs*1e9)+1, brig.LevelNone,
		"the container lacks the processor limit", "the engine says: processors of %g", float64(h.NanoCPUs)/1e9)
	if h.PidsLimit != nil {
		look(brig.AreaProcesses, *h.PidsLimit > 0, brig.LevelNone, "the container lacks a process limit", "the engine says: processes of %d", *h.PidsLimit)
	} else {
		look(brig.AreaProcesses, false, brig.LevelNone, "the container lacks a process limit", "")
	}
	sized := p.Storage == storageLayer && h.StorageOpt["size"] != "" || h.ReadonlyRootfs
	look(brig.AreaDisk, sized, brig.LevelNone, "the container's layer has no size limit", "the engine says: read-only image %t, size of the layer %q", h.ReadonlyRootfs, h.StorageOpt["size"])
	look(brig.AreaEgress, h.NetworkMode.IsNone() && c.State.Pid != 0, brig.LevelNone, "the container has a network", "the engine says: network %s", h.NetworkMode)
	return out
}

// hasOnlyVolume reports whether the only mounts are the agent's volume,
// mounted read-only, and tmpfs mounts.
func hasOnlyVolume(c container.InspectResponse) bool {
	for _, m := range c.Mounts {
		if m.Type == "tmpfs" || m.Type == "volume" && m.Destination == agentDir && !m.RW {
			continue
		}
		return false
	}
	return true
}
