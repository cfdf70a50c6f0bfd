//go:build !amd64

package gvisor

import "errors"

// unmounter is not supported on this architecture.
func unmounter() (string, error) { return "", errors.ErrUnsupported }
