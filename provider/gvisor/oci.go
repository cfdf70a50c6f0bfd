package gvisor

import (
	"fmt"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"

	"github.com/brig-run/brig"
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

// agentID is the agent's user and group, which nobody else has (see package
// agent).
const agentID = 64999

// agentFD is the descriptor on which the agent finds its control socket.
const agentFD = 3

// shmSize is the size of /dev/shm, in bytes.
const shmSize = 64 * brig.MiB

// ociSpec says in OCI's words what the sandbox is.
func (o *order) ociSpec() *specs.Spec {
	caps := agentCaps()
	agent, bounding := []string{"brig-agent"}, []string{}
	if o.disabled("capabilities") {
		agent, bounding = append(agent, "keep-capabilities"), caps
	}
	oom := 500
	s := &specs.Spec{
		Version:  specs.Version,
		Hostname: o.Hostname,
		Process: &specs.Process{
			Args: agent,
			Cwd:  "/",
			User: specs.User{UID: agentID, GID: agentID},
			Env:  []string{"PATH=/usr/bin:/bin", "GOMAXPROCS=2", "GOGC=50"},
			Capabilities: &specs.LinuxCapabilities{
				Bounding: bounding, Effective: caps, Permitted: caps, Ambient: caps,
			},
			NoNewPrivileges: !o.disabled("no-new-privileges"),
			OOMScoreAdj:     &oom,
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_CORE"},
				{Type: "RLIMIT_NOFILE", Soft: 1 << 20, Hard: 1 << 20},
			},
		},
		Root: &specs.Root{Path: o.Root.Dir},
		Linux: &specs.Linux{
			CgroupsPath: o.Cgroup,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace},
			},
		},
	}
	for _, b := range o.Root.Binds {
		options := []string{"rbind", "ro", "nosuid", "nodev"}
		if o.disabled("read-only") {
			options = []string{"rbind", "rw"}
		}
		s.Mounts = append(s.Mounts, specs.Mount{Type: "bind", Source: b.Source, Destination: b.Target, Options: options})
	}
	tmp := max(min(o.Limits.Memory/2, o.Limits.Disk), brig.MiB)
	s.Mounts = append(s.Mounts,
		specs.Mount{Type: "proc", Destination: "/proc", Options: []string{"nosuid", "noexec", "nodev"}},
		specs.Mount{Type: "sysfs", Destination: "/sys", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		specs.Mount{Type: "tmpfs", Destination: "/dev", Options: []string{"nosuid", "noexec"}},
		specs.Mount{Type: "tmpfs", Destination: "/dev/shm", Options: []string{"nosuid", "nodev", "mode=1777", fmt.Sprintf("size=%d", min(shmSize, tmp))}},
		specs.Mount{Type: "tmpfs", Destination: "/tmp", Options: []string{"nosuid", "nodev", "mode=1777", fmt.Sprintf("size=%d", tmp)}},
	)
	return s
}

// runscConfig is gVisor's configuration. What is not named has gVisor's
// default, which is the strict one: no host sockets, no host fifos, no setuid.
// If join, gVisor puts itself into the cgroup.
func (o *order) runscConfig(l layout, join bool) (*config.Config, error) {
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
	fs := flag.NewFlagSet("runsc", flag.ContinueOnError)
	config.RegisterFlags(fs)
	for k, v := range flags {
		if err := fs.Set(k, v); err != nil {
			return nil, fmt.Errorf("set gvisor flag %s: %w", k, err)
		}
	}
	conf, err := config.NewFromFlags(fs)
	if err != nil {
		return nil, fmt.Errorf("configure gvisor: %w", err)
	}
	return conf, nil
}

func (o *order) disabled(protection string) bool {
	for _, d := range o.Disabled {
		if d == protection {
			return true
		}
	}
	return false
}

// bundle is the folder from which gVisor reads its configuration.
func (l layout) bundle() string { return filepath.Clean(l.dir) }
