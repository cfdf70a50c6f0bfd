package docker

import (
	"strings"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/brig-run/brig"
)

// engineError returns the error that callers see if the engine fails.
func engineError(err error) error {
	return brig.Errorf(brig.Unavailable, "the Docker Engine does not answer as it should").
		WithHint("see that the engine runs and that this server may use it; the server's log has the cause").Because(err)
}

func creationError(err error) error {
	switch {
	case strings.Contains(err.Error(), "storage-opt"):
		return brig.Errorf(brig.CreationFailed, "the engine's storage driver gives containers no size").
			WithHint("set the provider's storage to memory, or have the engine store on xfs with project quotas").Because(err)
	case strings.Contains(err.Error(), tunDevice):
		return brig.Errorf(brig.CreationFailed, "the engine's machine has no %s, and the sandbox is to have egress rules", tunDevice).
			WithHint("load the module tun at the engine's machine, or leave the egress rules out").Because(err)
	case strings.Contains(err.Error(), "no space left on device"):
		return brig.Errorf(brig.Unavailable, "the engine's disk is full").WithHint("free space where the engine keeps its data").Because(err)
	}
	return brig.Errorf(brig.CreationFailed, "the sandbox did not start").
		WithHint("the server's log has the Docker Engine's message").Because(err)
}

func imageError(err error, name string) error {
	if cerrdefs.IsNotFound(err) {
		return brig.Errorf(brig.NotFound, "the engine has no image %q", brig.Clip(name, 200)).
			WithHint("pull or build it at the engine, or let the provider pull missing images").Because(err)
	}
	if cerrdefs.IsInvalidArgument(err) {
		return brig.InvalidField("image", "%q names no image", brig.Clip(name, 200)).WithHint("give a reference as docker has them").Because(err)
	}
	return engineError(err)
}

var errEnded = brig.Errorf(brig.FailedPrecondition, "the sandbox has ended").WithHint("see the sandbox's exit and logs")
