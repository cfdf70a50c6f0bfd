package rest_test

import "github.com/brig-run/brig"

// stubTools stand for the tools, which have a door of their own: nothing here
// calls them.
type stubTools struct{ brig.ToolService }
