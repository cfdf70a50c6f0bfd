package gvisor

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/failpoint"
)

// agentCaps returns the capabilities of the agent over the processes and files of
// its own sandbox. The agent's bounding set is empty, and the agent drops its
// ambient capabilities before it starts a process. Its child processes therefore
// have no capabilities, regardless of their user.
func agentCaps() []string {
	return []string{
		"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_RESOURCE",
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SETPCAP",
		"CAP_SYS_ADMIN",  // to set the hostname when the sandbox is claimed
		"CAP_NET_ADMIN",  // to create the interface of a network link
		"CAP_SYS_PTRACE", // to find the descriptors that prevent a save
	}
}

// buildCaps returns the capabilities of wire.BuildRights. The agent must have them all: with
// no_new_privs, a program starts with no capability that the agent lacks. They are capabilities
// over the sandbox's own files and processes. The sentry never has them on the host.
func buildCaps() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
		"CAP_SETGID", "CAP_SETUID", "CAP_SYS_CHROOT", "CAP_SETFCAP",
	}
}

// agentFD is the descriptor of the agent's control socket.
const agentFD = 3

// agentPath is the path of the agent in the guest. The agent is a file there,
// because a sandbox whose agent was executed from a donated descriptor cannot
// be saved.
const agentPath = "/.brig/brig-agent"

// binds returns the bind mounts of the image and of the agent.
func (o *order) binds() []Bind {
	if o.AgentAt == "" {
		return o.Root.Binds
	}
	return append(slices.Clone(o.Root.Binds), Bind{Source: o.Agent, Target: o.AgentAt})
}

// oomScore makes the kernel prefer to kill sandboxes when the host runs out of
// memory.
const oomScore = 500

// shmSize is the size of /dev/shm, in bytes.
const shmSize = 64 * brig.MiB

// bundle is the configuration of an OCI bundle, reduced to the required
// fields. The types of the OCI package have hundreds of fields, which make the
// first encoding slow.
type bundle struct {
	Version  string        `json:"ociVersion"`
	Hostname string        `json:"hostname"`
	Process  bundleProcess `json:"process"`
	Root     bundlePath    `json:"root"`
	Mounts   []bundleMount `json:"mounts"`
	Linux    bundleLinux   `json:"linux"`

	Annotations map[string]string `json:"annotations,omitempty"`
}

type bundleProcess struct {
	Args            []string            `json:"args"`
	Cwd             string              `json:"cwd"`
	User            bundleUser          `json:"user"`
	Env             []string            `json:"env"`
	Capabilities    map[string][]string `json:"capabilities"`
	NoNewPrivileges bool                `json:"noNewPrivileges"`
	OOMScoreAdj     int                 `json:"oomScoreAdj"`
	Rlimits         []bundleRlimit      `json:"rlimits"`
}

type bundleUser struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

type bundleRlimit struct {
	Type string `json:"type"`
	Hard uint64 `json:"hard"`
	Soft uint64 `json:"soft"`
}

type bundlePath struct {
	Path string `json:"path"`
}

type bundleMount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source,omitempty"`
	Options     []string `json:"options"`
}

type bundleLinux struct {
	CgroupsPath string            `json:"cgroupsPath,omitempty"`
	Namespaces  []bundleNamespace `json:"namespaces"`
}

type bundleNamespace struct {
	Type string `json:"type"`
}

// bundle returns the sandbox's OCI configuration.
func (o *order) bundle() bundle {
	caps := agentCaps()
	agent, bounding := []string{cmp.Or(o.AgentAt, "brig-agent")}, []string{}
	if o.isDisabled("capabilities") && !o.Build {
		agent, bounding = append(agent, "keep-capabilities"), caps
	}
	if o.Build {
		agent, bounding = append(agent, wire.BuildWord), buildCaps()
		caps = append(caps, "CAP_FSETID", "CAP_SETFCAP", "CAP_SYS_CHROOT")
	}
	b := bundle{
		Version:  "1.2.0",
		Hostname: o.Hostname,
		Process: bundleProcess{
			Args:            agent,
			Cwd:             "/",
			User:            bundleUser{wire.AgentID, wire.AgentID},
			Env:             []string{"PATH=/usr/bin:/bin", "GOMAXPROCS=2", "GOGC=50"},
			Capabilities:    map[string][]string{"bounding": bounding, "effective": caps, "permitted": caps, "ambient": caps},
			NoNewPrivileges: !o.isDisabled("no-new-privileges"),
			OOMScoreAdj:     oomScore,
			Rlimits:         []bundleRlimit{{Type: "RLIMIT_CORE"}, {Type: "RLIMIT_NOFILE", Soft: 1 << 20, Hard: 1 << 20}},
		},
		Root:  bundlePath{o.Root.Dir},
		Linux: bundleLinux{CgroupsPath: o.Cgroup},
	}
	for _, ns := range []string{"pid", "mount", "ipc", "uts", "network"} {
		b.Linux.Namespaces = append(b.Linux.Namespaces, bundleNamespace{ns})
	}
	for _, m := range o.binds() {
		options := []string{"rbind", "ro", "nosuid", "nodev"}
		if o.isDisabled("read-only") {
			options = []string{"rbind", "rw"}
		}
		if o.Alone {
			options = append(options, fsOptions(m.Source)...)
		}
		b.Mounts = append(b.Mounts, bundleMount{Type: "bind", Source: m.Source, Destination: m.Target, Options: options})
	}
	tmp := max(min(o.Limits.Memory/2, o.Limits.Disk), brig.MiB)
	b.Mounts = append(b.Mounts,
		bundleMount{Type: "proc", Destination: "/proc", Options: []string{"nosuid", "noexec", "nodev"}},
		bundleMount{Type: "sysfs", Destination: "/sys", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		bundleMount{Type: "tmpfs", Destination: "/dev", Options: []string{"nosuid", "noexec"}},
		bundleMount{Type: "tmpfs", Destination: "/dev/shm", Options: []string{"nosuid", "nodev", "mode=1777", fmt.Sprintf("size=%d", min(shmSize, tmp))}},
		o.tmpMount(tmp),
	)
	b.addVolumes(o.Volumes)
	return b
}

// addVolumes adds the mounts of volumes. gVisor must not cache what other sandboxes may change, and
// finds the annotation that says so by the name of the source, which it never opens.
func (b *bundle) addVolumes(volumes []volume) {
	for n, v := range volumes {
		// A volume at /tmp replaces the sandbox's own files there, which would hide it.
		b.Mounts = slices.DeleteFunc(b.Mounts, func(m bundleMount) bool { return m.Type == "tmpfs" && m.Destination == v.Target })
		source, access := fmt.Sprintf("/volume/%d", n), "rw"
		if v.ReadOnly {
			access = "ro"
		}
		b.Mounts = append(b.Mounts, bundleMount{Type: "bind", Source: source, Destination: v.Target, Options: []string{"rbind", access, "nosuid", "nodev"}})
		if b.Annotations == nil {
			b.Annotations = map[string]string{}
		}
		hint := fmt.Sprintf("dev.gvisor.spec.mount.volume%d.", n)
		b.Annotations[hint+"source"], b.Annotations[hint+"type"], b.Annotations[hint+"share"] = source, "bind", "shared"
	}
}

// tmpMount returns the mount that provides /tmp, of a number of bytes. In a build, /tmp is in the root file
// system: steps unpack packages there that are larger than the memory, and a later build continues with the
// files. gVisor covers an empty /tmp with a tmpfs, so the mount is only inside /tmp.
func (o *order) tmpMount(size int64) bundleMount {
	if o.Build {
		return bundleMount{Type: "tmpfs", Destination: "/tmp/.brig", Options: []string{"nosuid", "noexec", "nodev", "ro", "mode=0755", "size=4096"}}
	}
	return bundleMount{Type: "tmpfs", Destination: "/tmp", Options: []string{"nosuid", "nodev", "mode=1777", fmt.Sprintf("size=%d", size)}}
}

// fsOptions returns the mount options that the file system of path needs. With
// a gofer, the gofer reports them to gVisor.
func fsOptions(path string) []string {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return nil // the mount itself reports the error
	}
	switch fs.Type {
	case unix.OVERLAYFS_SUPER_MAGIC:
		return []string{"overlayfs_stale_read"}
	case unix.NFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC:
		return []string{"disable_file_handle_sharing"}
	}
	return nil
}

// flags returns gVisor's flags. The omitted flags have gVisor's strict
// defaults: no host sockets, no host FIFOs, no setuid. If join is set, gVisor
// joins the cgroup itself.
func (o *order) flags(l layout, join bool) map[string]string {
	flags := map[string]string{
		"root":     l.path(stateDir),
		"platform": "systrap",
		"network":  "none",
		// The whole root is writable. A file of limited size stores the
		// changes.
		"overlay2": fmt.Sprintf("root:dir=%s,size=%d", l.path(overlayDir), o.Limits.Disk),
		// Images do not change while sandboxes use them, so gVisor may cache
		// names and attributes. Caching makes imports in Python faster.
		"file-access":        "exclusive",
		"file-access-mounts": "exclusive",
		// The shim already has an empty network namespace.
		"gofer-network-namespace": "host",
		"host-settings":           "ignore",
		"panic-log":               l.path(panicFile),
		"ignore-cgroups":          fmt.Sprint(!join),
		"rootless":                fmt.Sprint(o.Rootless),
	}
	if o.isDisabled("network") {
		flags["network"] = "host"
	}
	return flags
}

func (o *order) isDisabled(protection string) bool { return isDisabled(o.Disabled, protection) }

func (p *Provider) isDisabled(protection string) bool { return isDisabled(p.Disabled, protection) }

func isDisabled(disabled []string, protection string) bool {
	return failpoint.Enabled && slices.Contains(disabled, protection)
}

// bundleDir returns the directory from which gVisor reads its configuration.
func (l layout) bundleDir() string { return filepath.Clean(l.dir) }

// links is the network configuration of a guest in gVisor's format: only the
// loopback interface.
type links struct{ LoopbackLinks []link }

type link struct {
	Name      string
	Addresses []linkAddress
	Routes    []linkRoute
	GVisorGRO bool
}

type linkAddress struct {
	Address   net.IP
	PrefixLen int
}

type linkRoute struct{ Destination net.IPNet }

// loopback returns the guest's network configuration.
func loopback() links {
	v4, v6 := net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback
	return links{[]link{{
		Name:      "lo",
		Addresses: []linkAddress{{v4, 8}, {v6, 128}},
		Routes: []linkRoute{
			{net.IPNet{IP: net.IPv4(127, 0, 0, 0), Mask: net.CIDRMask(8, 32)}},
			{net.IPNet{IP: v6, Mask: net.CIDRMask(128, 128)}},
		},
	}}}
}
