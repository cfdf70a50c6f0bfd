//go:build tools

// Package gremlins pins the program that makes mutants of Brig's code.
package gremlins

import _ "github.com/go-gremlins/gremlins/cmd/gremlins"
