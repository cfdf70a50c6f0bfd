//go:build shim

package gvisor

import (
	"errors"

	"github.com/brig-run/brig/internal/cgroup"
)

// cgoEnabled is of no interest to a shim, which starts nothing of itself.
const cgoEnabled = false

// withGofer is not for the small shim, which has nothing of gVisor in it: a
// provider gives it no such order.
func withGofer(layout, *order, *cgroup.Group, donated) (kernel, error) {
	return nil, errors.New("this shim starts no gofer")
}
