package brig_test

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

func TestViaHeader(t *testing.T) {
	ctx := brig.WithVia(t.Context(), "1.0 proxy, 1.1 brig-a")
	there := brig.ViaFrom(ctx, "b")
	if there != "1.0 proxy, 1.1 brig-a, 1.1 brig-b" || brig.ViaFrom(t.Context(), "b") != "1.1 brig-b" {
		t.Errorf("%q", there)
	}
	for server, want := range map[string]bool{"a": true, "b": true, "c": false, "": false, "proxy": false, "a, 1.1 brig": false} {
		if brig.IsForwardingLoop(there, server) != want {
			t.Errorf("it came back to %q: %v", server, !want)
		}
	}
	if !brig.IsForwardingLoop(strings.Repeat("1.1 x, ", 200), "c") || brig.IsForwardingLoop("", "c") {
		t.Error("the bound on the length")
	}
}
