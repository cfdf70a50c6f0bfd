//go:build tools

// Package tools pins the versions of the development tools, separately from
// Brig's own dependencies.
package tools

import _ "github.com/golangci/golangci-lint/v2/cmd/golangci-lint"
