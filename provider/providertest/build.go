package providertest

import (
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// testBuildRights checks that a provider either gives root the rights of a build, and saves such an
// instance only without its memory, or rejects the spec.
func testBuildRights(t *testing.T, h Harness) {
	if !h.Provider.Capabilities().BuildRights {
		spec := h.spec()
		spec.BuildRights = true
		in, err := h.Provider.Create(t.Context(), newID(), spec, time.Now().Add(instanceLease))
		unimplemented(t, "an instance with the rights of a build", err)
		if err == nil {
			destroy(t, in)
		}
		return
	}
	_, in := create(t, h, func(s *brig.Spec) { s.BuildRights = true })
	writeNote(t, in)
	if h.Real {
		cmd := script("cd /workspace && touch f && chown 1000:1234 f && stat -c %u:%g f")
		cmd.User = "root"
		if a := run(t, in, cmd); a.out != "1000:1234\n" {
			t.Errorf("a file of root's: %+v", a)
		}
	}
	s := h.saver(t)
	if err := s.CheckSave(t.Context(), in); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("a check for a save with memory: %v", err)
	}
	id := brig.SaveID(newID())
	if _, err := s.Save(t.Context(), in, id, brig.SaveOptions{Stay: true}); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("a save with memory: %v", err)
	}
	saved(t, s, in, id, brig.SaveOptions{FilesOnly: true})
	hasNote(t, restored(t, h, s, id, newID()))
}
