//go:build tools

// Package gremlins pins the version of the mutation testing tool.
package gremlins

import _ "github.com/go-gremlins/gremlins/cmd/gremlins"
