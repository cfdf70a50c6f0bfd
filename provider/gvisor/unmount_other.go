//go:build !amd64

package gvisor

import "errors"

// unmounter is only for processors whose machine code somebody wrote.
func unmounter() (string, error) { return "", errors.ErrUnsupported }
