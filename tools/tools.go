//go:build tools

// Package tools pins the programs that the project is checked with, apart
// from what it is made of.
package tools

import _ "github.com/golangci/golangci-lint/v2/cmd/golangci-lint"
