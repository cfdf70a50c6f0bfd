package docker

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// The container of a machine with an uplink has no network of the engine's, as
// any other: the agent makes an interface in it, whose packets it carries over
// its session. For that it needs a device and a capability, which no program
// that it starts has. With runc both are of the host's kernel, so that only
// those containers have them that may need them.

// tunDevice is the device of which interfaces are made.
const tunDevice = "/dev/net/tun"

// linkCap is the capability to make an interface.
const linkCap = "NET_ADMIN"

// mayLink reports whether a machine may have an uplink: it has rules, or nobody
// knows yet whether it will. In gVisor's kernel it costs the host nothing.
func (p *Provider) mayLink(spec brig.Spec) bool {
	return p.gvisor || spec.Blank || len(spec.Egress.Rules) > 0
}

// Uplink implements brig.Instance.
func (i *instance) Uplink(ctx context.Context, authority []byte) (brig.Uplink, error) {
	if !i.is().Uplink {
		err := brig.Errorf(brig.FailedPrecondition, "this sandbox was made without egress rules, and can be given none by the docker provider")
		err.Field = "egress"
		return nil, err.WithHint("make one with a rule: then rules can be changed while it runs")
	}
	return i.Guest.Uplink(ctx, authority)
}

// link adds to a container what an uplink needs.
func (p *Provider) link(h *container.HostConfig) {
	h.CapAdd = append(h.CapAdd, linkCap)
	if !p.gvisor { // whose kernel has a device of its own
		h.Devices = []container.DeviceMapping{{PathOnHost: tunDevice, PathInContainer: tunDevice, CgroupPermissions: "rw"}}
	}
	// The engine writes this into the container's resolv.conf, which with a
	// read-only image nobody can write any more.
	h.DNS, h.DNSSearch = []netip.Addr{brig.UplinkGateway}, []string{"."}
	for line := range strings.Lines(wire.ResolverFile(brig.UplinkGateway.String())) {
		if options, ok := strings.CutPrefix(line, "options "); ok {
			h.DNSOptions = strings.Fields(options)
		}
	}
	if p.Storage == storageMemory {
		h.Tmpfs[trustDir] = trustOptions
	}
}

// onlyLink reports whether the container has no device but what an uplink needs.
func (p *Provider) onlyLink(h *container.HostConfig, may bool) bool {
	return !slices.ContainsFunc(h.Devices, func(d container.DeviceMapping) bool {
		return !may || p.gvisor || d.PathOnHost != tunDevice || d.PathInContainer != tunDevice
	}) && len(h.DeviceRequests)+len(h.DeviceCgroupRules) == 0
}
