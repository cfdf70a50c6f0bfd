package docker

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/failpoint"
)

// The labels with which this server finds its containers.
const (
	labelInstance  = "run.brig.instance"
	labelSandbox   = "run.brig.sandbox"
	labelEphemeral = "run.brig.ephemeral"
)

// agentDir is the agent's directory in a container, and agentPath its path.
const (
	agentDir  = "/.brig"
	agentName = "agent"
	agentPath = agentDir + "/" + agentName
)

// agentCaps returns the capabilities of the agent over the processes and files of
// its own sandbox. The agent empties its bounding set before it starts a process.
// Its child processes therefore have no capabilities, regardless of their user.
func (p *Provider) agentCaps() []string {
	caps := []string{"SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER", "SETPCAP"}
	if p.gvisor {
		// In gVisor's kernel, the agent sets the hostname and the limits of
		// other processes.
		caps = append(caps, "SYS_ADMIN", "SYS_RESOURCE")
	}
	return caps
}

// agentTasks is the number of processes and threads that the agent and one exec
// of the engine need. The host's kernel counts these together with the guest's
// processes.
const agentTasks = 64

// agentFiles is the number of files that the agent must be able to open.
const agentFiles = 256

// leaseSlack is the delay after which the agent ends an expired sandbox if the
// server has not ended it.
const leaseSlack = 2 * time.Second

// shmSize is the size of /dev/shm, in bytes.
const shmSize = 64 * brig.MiB

// container returns the engine's configuration of a sandbox.
func (p *Provider) container(id brig.ID, o order, img image.InspectResponse) client.ContainerCreateOptions {
	args := []string{wire.ServeWord, strconv.FormatInt(max(time.Until(o.Lease)+leaseSlack, 0).Milliseconds(), 10)}
	if o.Ephemeral {
		args = append(args, wire.TetherWord)
	}
	if o.Uplink && !p.isDisabled("tun") {
		args = append(args, wire.UplinkWord)
	}
	if p.isDisabled("capabilities") {
		args = append(args, "keep-capabilities")
	}
	host := p.hardened(o)
	for dir := range volumesOf(img) {
		if _, ours := host.Tmpfs[dir]; !ours {
			host.Tmpfs[dir] = "ro,size=4k" // otherwise the engine creates a volume of unlimited size
		}
	}
	return client.ContainerCreateOptions{
		Name: p.Prefix + "-" + string(id), HostConfig: host,
		Config: &container.Config{
			Image: img.ID, Hostname: o.Hostname, User: "0:0", WorkingDir: "/",
			Entrypoint: []string{agentPath}, Cmd: args,
			// Do not pass the image's environment to the agent, because it is
			// meant for the image's programs.
			Env:             []string{"PATH=/usr/bin:/bin", "GOMAXPROCS=2", "GOGC=50", "GODEBUG=", "GOTRACEBACK=none", "GOMEMLIMIT="},
			Healthcheck:     &container.HealthConfig{Test: []string{"NONE"}},
			NetworkDisabled: !o.Uplink && !p.isDisabled("network"), // if it has no network, the engine writes no resolv.conf
			Labels: map[string]string{
				labelInstance: p.Instance, labelSandbox: string(id), labelEphemeral: strconv.FormatBool(o.Ephemeral),
			},
		},
	}
}

func volumesOf(img image.InspectResponse) map[string]struct{} {
	if img.Config == nil {
		return nil
	}
	return img.Config.Volumes
}

// hardened returns the host configuration with all limits and protections of a
// container.
func (p *Provider) hardened(o order) *container.HostConfig {
	l := o.Limits
	tmp := max(min(l.Memory/2, l.Disk), brig.MiB)
	pids := int64(l.Processes + agentTasks)
	files := int64(l.OpenFiles)
	if p.gvisor {
		files = 16 << 10
		// gVisor's kernel enforces the requested limit.
		pids = guest.SentryThreads(l.Processes)
	}
	h := &container.HostConfig{
		Runtime: p.Runtime, NetworkMode: "none", IpcMode: "private", CgroupnsMode: "private",
		CapDrop: []string{"ALL"}, CapAdd: p.agentCaps(), OomScoreAdj: 500,
		SecurityOpt:    []string{"no-new-privileges"},
		ReadonlyRootfs: p.Storage == storageMemory,
		ShmSize:        min(shmSize, tmp),
		Tmpfs:          map[string]string{"/tmp": fmt.Sprintf("exec,nosuid,nodev,mode=1777,size=%d", tmp)},
		Mounts: []mount.Mount{{
			Type: mount.TypeVolume, Source: p.volume, Target: agentDir, ReadOnly: true,
			VolumeOptions: &mount.VolumeOptions{NoCopy: true},
		}},
		Resources: container.Resources{
			Memory: l.Memory, MemorySwap: l.Memory, // the same value for memory and memory plus swap: no swap
			NanoCPUs: int64(l.CPUs * 1e9), PidsLimit: &pids,
			Ulimits: []*container.Ulimit{{Name: "core"}, {Name: "nofile", Soft: files, Hard: files}},
		},
		LogConfig: container.LogConfig{Type: "none"},
	}
	if o.Main {
		h.LogConfig = container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "8m", "max-file": "2"}}
	}
	if p.Storage == storageMemory {
		for dir, m := range tmpfsSizes(l) {
			h.Tmpfs[dir] = m
		}
		h.Tmpfs[path.Dir(wire.ProgramsDir)] = "nosuid,nodev,noexec,size=64k,mode=755" // contains the symbolic link named python
	} else {
		h.StorageOpt = map[string]string{"size": strconv.FormatInt(l.Disk, 10)}
	}
	if o.Uplink {
		p.link(h)
	}
	if p.isDisabled("capabilities") {
		h.CapDrop, h.CapAdd = nil, append(h.CapAdd, "SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE")
	}
	if p.isDisabled("no-new-privileges") {
		h.SecurityOpt = nil
	}
	if p.isDisabled("network") {
		h.NetworkMode = "host"
	}
	if p.isDisabled("pids") {
		h.PidsLimit = nil
	}
	if p.isDisabled("memory") {
		h.Memory, h.MemorySwap = 0, 0
	}
	if p.isDisabled("read-only") {
		h.ReadonlyRootfs = false
	}
	if p.isDisabled("socket") {
		h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeBind, Source: p.Host[len("unix://"):], Target: "/var/run/docker.sock"})
	}
	return h
}

// tmpfsSizes returns the mount points and sizes of the tmpfs mounts to which a
// sandbox writes instead of a disk. Their total size is at most the sandbox's
// disk limit and half of its memory limit.
func tmpfsSizes(l brig.Limits) map[string]string {
	all := min(l.Disk, l.Memory/2)
	small := max(all/16, 64*brig.KiB)
	at := func(size int64, who string) string { return fmt.Sprintf("exec,nosuid,nodev,size=%d,%s", size, who) }
	return map[string]string{
		"/workspace": at(max(all-4*small, brig.MiB/2), "uid=1000,gid=0,mode=0775"),
		"/home/user": at(2*small, "uid=1000,gid=1000,mode=0755"),
		"/root":      at(small, "uid=0,gid=0,mode=0700"),
		"/var/tmp":   at(small, "mode=1777"),
	}
}

func (p *Provider) isDisabled(protection string) bool {
	return failpoint.Enabled && slices.Contains(p.Disabled, protection)
}
