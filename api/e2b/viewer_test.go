package e2b

import (
	"testing"

	"github.com/brig-run/brig"
)

// Whoever shows a sandbox's token acts as a member, so nobody less is told one.
func TestTokensAreForMembers(t *testing.T) {
	d := New(Options{Seed: []byte("seed")})
	box := &brig.Sandbox{ID: "sbx", Spec: brig.Spec{Labels: map[string]string{labelPublic: "false"}}}
	if !isClosed(box) {
		t.Fatal("the sandbox is open to the public")
	}
	for role, told := range map[brig.Role]bool{brig.Viewer: false, brig.Member: true, brig.Admin: true} {
		c := d.connected(brig.WithActor(t.Context(), brig.Actor{Role: role}), box)
		if (c.EnvdAccessToken != "") != told || (c.TrafficAccessToken != nil) != told {
			t.Errorf("a %s is told %+v", role, c)
		}
	}
}
