package docker

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// The labels by which this server knows its containers.
const (
	labelInstance  = "run.brig.instance"
	labelSandbox   = "run.brig.sandbox"
	labelEphemeral = "run.brig.ephemeral"
)

// agentDir is where the agent is in a container, and agentPath the agent.
const (
	agentDir  = "/.brig"
	agentName = "agent"
	agentPath = agentDir + "/" + agentName
)

// agentCaps are what the agent may do to the processes and files of its own
// sandbox. It empties its bounding set before it starts anything, so that
// nothing that it starts has any of them, whoever it runs as.
func (p *Provider) agentCaps() []string {
	caps := []string{"SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER", "SETPCAP"}
	if p.gvisor {
		// Of gVisor's kernel: to set the host name, and limits that are not its own.
		caps = append(caps, "SYS_ADMIN", "SYS_RESOURCE")
	}
	return caps
}

// agentTasks is how many processes and threads are the agent's, and what an
// exec of the engine's takes: the host's kernel counts them with the guest's.
const agentTasks = 64

// agentFiles is how many files the agent must be able to open.
const agentFiles = 256

// behind is how far the agent's own clock of the lease runs behind the server's.
const behind = 2 * time.Second

// shmSize is the size of /dev/shm, in bytes.
const shmSize = 64 * brig.MiB

// container says in the engine's words what a machine is.
func (p *Provider) container(id brig.ID, o order, img image.InspectResponse) client.ContainerCreateOptions {
	args := []string{wire.ServeWord, strconv.FormatInt(max(time.Until(o.Lease)+behind, 0).Milliseconds(), 10)}
	if o.Ephemeral {
		args = append(args, wire.TetherWord)
	}
	if o.Uplink && !p.disabled("tun") {
		args = append(args, wire.UplinkWord)
	}
	if p.disabled("capabilities") {
		args = append(args, "keep-capabilities")
	}
	host := p.hardened(o)
	for dir := range volumesOf(img) {
		if _, ours := host.Tmpfs[dir]; !ours {
			host.Tmpfs[dir] = "ro,size=4k" // without it the engine makes a volume without a size
		}
	}
	return client.ContainerCreateOptions{
		Name: p.Prefix + "-" + string(id), HostConfig: host,
		Config: &container.Config{
			Image: img.ID, Hostname: o.Hostname, User: "0:0", WorkingDir: "/",
			Entrypoint: []string{agentPath}, Cmd: args,
			// An image's environment is its programs', and not the agent's.
			Env:             []string{"PATH=/usr/bin:/bin", "GOMAXPROCS=2", "GOGC=50", "GODEBUG=", "GOTRACEBACK=none", "GOMEMLIMIT="},
			Healthcheck:     &container.HealthConfig{Test: []string{"NONE"}},
			NetworkDisabled: !o.Uplink && !p.disabled("network"), // an engine without network writes no resolv.conf
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

// hardened is everything that holds a container.
func (p *Provider) hardened(o order) *container.HostConfig {
	l := o.Limits
	tmp := max(min(l.Memory/2, l.Disk), brig.MiB)
	pids := int64(l.Processes + agentTasks)
	files := int64(l.OpenFiles)
	if p.gvisor {
		files = 16 << 10
		// A hit on the host crashes the sentry: gVisor's kernel counts inside.
		pids = int64(4*l.Processes + 512)
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
			Memory: l.Memory, MemorySwap: l.Memory, // as much together as alone: no swap
			NanoCPUs: int64(l.CPUs * 1e9), PidsLimit: &pids,
			Ulimits: []*container.Ulimit{{Name: "core"}, {Name: "nofile", Soft: files, Hard: files}},
		},
		LogConfig: container.LogConfig{Type: "none"},
	}
	if o.Main {
		h.LogConfig = container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "8m", "max-file": "2"}}
	}
	if p.Storage == storageMemory {
		for dir, m := range shares(l) {
			h.Tmpfs[dir] = m
		}
	} else {
		h.StorageOpt = map[string]string{"size": strconv.FormatInt(l.Disk, 10)}
	}
	if o.Uplink {
		p.link(h)
	}
	if p.disabled("capabilities") {
		h.CapDrop, h.CapAdd = nil, append(h.CapAdd, "SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE")
	}
	if p.disabled("no-new-privileges") {
		h.SecurityOpt = nil
	}
	if p.disabled("network") {
		h.NetworkMode = "host"
	}
	if p.disabled("pids") {
		h.PidsLimit = nil
	}
	if p.disabled("memory") {
		h.Memory, h.MemorySwap = 0, 0
	}
	if p.disabled("read-only") {
		h.ReadonlyRootfs = false
	}
	if p.disabled("socket") {
		h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeBind, Source: p.Host[len("unix://"):], Target: "/var/run/docker.sock"})
	}
	return h
}

// shares are the file systems in memory that a machine writes to in the stead
// of a disk. Together they are no larger than its disk may be, and than half of
// its memory.
func shares(l brig.Limits) map[string]string {
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

func (p *Provider) disabled(protection string) bool { return slices.Contains(p.Disabled, protection) }
