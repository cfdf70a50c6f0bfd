package rest_test

import "github.com/brig-run/brig"

// stubTools implements the tools, which have their own API. These tests do not
// call them.
type stubTools struct{ brig.ToolService }
