package gvisor

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// agentCaps are what the agent may do to the processes and files of its own
// sandbox. Its bounding set is empty and it gives its ambient capabilities up
// before it starts anything, so that nothing that it starts has any of them,
// whoever it runs as.
func agentCaps() []string {
	return []string{
		"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_RESOURCE",
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SETPCAP",
		"CAP_SYS_ADMIN", // to set the host name when the sandbox is claimed
		"CAP_NET_ADMIN", // to make the interface of an uplink
	}
}

// agentFD is the descriptor on which the agent finds its control socket.
const agentFD = 3

// oomScore is how much rather than others a sandbox is killed when the machine
// is out of memory.
const oomScore = 500

// shmSize is the size of /dev/shm, in bytes.
const shmSize = 64 * brig.MiB

// bundle is what OCI calls a bundle's configuration, as far as it is used here.
// The types of OCI's own package have hundreds of fields, and whoever encodes
// the first of them pays for them all.
type bundle struct {
	Version  string        `json:"ociVersion"`
	Hostname string        `json:"hostname"`
	Process  bundleProcess `json:"process"`
	Root     bundlePath    `json:"root"`
	Mounts   []bundleMount `json:"mounts"`
	Linux    bundleLinux   `json:"linux"`
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

// bundle says in OCI's words what the sandbox is.
func (o *order) bundle() bundle {
	caps := agentCaps()
	agent, bounding := []string{"brig-agent"}, []string{}
	if o.disabled("capabilities") {
		agent, bounding = append(agent, "keep-capabilities"), caps
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
			NoNewPrivileges: !o.disabled("no-new-privileges"),
			OOMScoreAdj:     oomScore,
			Rlimits:         []bundleRlimit{{Type: "RLIMIT_CORE"}, {Type: "RLIMIT_NOFILE", Soft: 1 << 20, Hard: 1 << 20}},
		},
		Root:  bundlePath{o.Root.Dir},
		Linux: bundleLinux{CgroupsPath: o.Cgroup},
	}
	for _, ns := range []string{"pid", "mount", "ipc", "uts", "network"} {
		b.Linux.Namespaces = append(b.Linux.Namespaces, bundleNamespace{ns})
	}
	for _, m := range o.Root.Binds {
		options := []string{"rbind", "ro", "nosuid", "nodev"}
		if o.disabled("read-only") {
			options = []string{"rbind", "rw"}
		}
		if o.Alone {
			options = append(options, habits(m.Source)...)
		}
		b.Mounts = append(b.Mounts, bundleMount{Type: "bind", Source: m.Source, Destination: m.Target, Options: options})
	}
	tmp := max(min(o.Limits.Memory/2, o.Limits.Disk), brig.MiB)
	b.Mounts = append(b.Mounts,
		bundleMount{Type: "proc", Destination: "/proc", Options: []string{"nosuid", "noexec", "nodev"}},
		bundleMount{Type: "sysfs", Destination: "/sys", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		bundleMount{Type: "tmpfs", Destination: "/dev", Options: []string{"nosuid", "noexec"}},
		bundleMount{Type: "tmpfs", Destination: "/dev/shm", Options: []string{"nosuid", "nodev", "mode=1777", fmt.Sprintf("size=%d", min(shmSize, tmp))}},
		bundleMount{Type: "tmpfs", Destination: "/tmp", Options: []string{"nosuid", "nodev", "mode=1777", fmt.Sprintf("size=%d", tmp)}},
	)
	return b
}

// habits are what gVisor must know of the file system that a mount's files are
// in; a gofer would tell it.
func habits(path string) []string {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return nil // who mounts it will see
	}
	switch fs.Type {
	case unix.OVERLAYFS_SUPER_MAGIC:
		return []string{"overlayfs_stale_read"}
	case unix.NFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC:
		return []string{"disable_file_handle_sharing"}
	}
	return nil
}

// flags are gVisor's. What is not named has gVisor's default, which is the
// strict one: no host sockets, no host fifos, no setuid. If join, gVisor puts
// itself into the cgroup.
func (o *order) flags(l layout, join bool) map[string]string {
	flags := map[string]string{
		"root":     l.path(stateDir),
		"platform": "systrap",
		"network":  "none",
		// The whole root is writable, into a file that is as large as it gets.
		"overlay2": fmt.Sprintf("root:dir=%s,size=%d", l.path(overlayDir), o.Limits.Disk),
		// Images do not change while sandboxes use them, so names and
		// attributes may be remembered; imports in Python gain from it.
		"file-access":        "exclusive",
		"file-access-mounts": "exclusive",
		// The shim has an empty network of its own already.
		"gofer-network-namespace": "host",
		"host-settings":           "ignore",
		"panic-log":               l.path(panicFile),
		"ignore-cgroups":          fmt.Sprint(!join),
		"rootless":                fmt.Sprint(o.Rootless),
	}
	if o.disabled("network") {
		flags["network"] = "host"
	}
	return flags
}

func (o *order) disabled(protection string) bool {
	for _, d := range o.Disabled {
		if d == protection {
			return true
		}
	}
	return false
}

// bundleDir is the folder from which gVisor reads its configuration.
func (l layout) bundleDir() string { return filepath.Clean(l.dir) }
