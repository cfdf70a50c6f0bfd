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

// Like all other containers, the container of a sandbox with a network link is
// not attached to a network of the engine. The agent creates an interface in
// the container and carries its packets over the session. For this, the agent
// needs a device and a capability that its child processes do not have. With
// runc, both belong to the host's kernel, so only containers that may need a
// network link have them.

// tunDevice is the device that creates interfaces.
const tunDevice = "/dev/net/tun"

// linkCap is the capability to create an interface.
const linkCap = "NET_ADMIN"

// mayLink reports whether a sandbox may have a network link, because it has
// rules or may get some later. With gVisor a link is always allowed, because
// it is not a risk for the host.
func (p *Provider) mayLink(spec brig.Spec) bool {
	return p.gvisor || spec.Blank || len(spec.Egress.Rules) > 0
}

// Uplink implements brig.Instance.
func (i *instance) Uplink(ctx context.Context, authority []byte) (brig.Uplink, error) {
	if !i.currentOrder().Uplink {
		err := brig.Errorf(brig.FailedPrecondition, "this sandbox was made without egress rules, and can be given none by the docker provider")
		err.Field = "egress"
		return nil, err.WithHint("create a sandbox with a rule, to change its rules while it runs")
	}
	return i.Guest.Uplink(ctx, authority)
}

// link adds the device and the capability of a network link to a container.
func (p *Provider) link(h *container.HostConfig) {
	h.CapAdd = append(h.CapAdd, linkCap)
	if !p.gvisor { // gVisor's kernel provides its own device
		h.Devices = []container.DeviceMapping{{PathOnHost: tunDevice, PathInContainer: tunDevice, CgroupPermissions: "rw"}}
	}
	// The engine writes these settings to the container's resolv.conf. If the
	// image is read-only, the file cannot be changed later.
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

// hasOnlyLink reports whether the container has no devices other than the
// device of a network link.
func (p *Provider) hasOnlyLink(h *container.HostConfig, may bool) bool {
	return !slices.ContainsFunc(h.Devices, func(d container.DeviceMapping) bool {
		return !may || p.gvisor || d.PathOnHost != tunDevice || d.PathInContainer != tunDevice
	}) && len(h.DeviceRequests)+len(h.DeviceCgroupRules) == 0
}
