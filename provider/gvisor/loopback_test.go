//go:build !shim

package gvisor

import (
	"encoding/json"
	"testing"

	runsc "gvisor.dev/gvisor/runsc/boot"
)

// TestLoopbackMatchesGVisor verifies that the shim's loopback configuration
// equals that of gVisor's own library.
func TestLoopbackMatchesGVisor(t *testing.T) {
	ours, err := json.Marshal(loopback())
	if err != nil {
		t.Fatal(err)
	}
	var got runsc.CreateLinksAndRoutesArgs
	if err := json.Unmarshal(ours, &got); err != nil {
		t.Fatal(err)
	}
	have, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(runsc.CreateLinksAndRoutesArgs{LoopbackLinks: []runsc.LoopbackLink{runsc.DefaultLoopbackLink}})
	if err != nil || string(have) != string(want) {
		t.Errorf("%s, want %s, %v", have, want, err)
	}
}
