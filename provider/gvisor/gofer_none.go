//go:build shim

package gvisor

import (
	"errors"

	"github.com/brig-run/brig/internal/cgroup"
)

// cgoEnabled is irrelevant to a shim, which does not start itself.
const cgoEnabled = false

// withGofer is not available in the small shim, which does not contain gVisor's
// code. Providers do not send it orders that need a gofer.
func withGofer(layout, *order, *cgroup.Group, donatedFiles) (kernel, error) {
	return nil, errors.New("this shim starts no gofer")
}
