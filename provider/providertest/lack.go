package providertest

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// testLacks checks that the provider rejects a feature that it lacks, and does
// not claim the feature. Cases that are not listed here are mandatory.
func testLacks(t *testing.T, h Harness, name string) {
	checks := map[string]func(*testing.T, Harness){
		"Freeze": lacksPause, "UplinkFrozen": lacksPause,
		"FilesFull":   lacksArea(brig.AreaDisk),
		"User":        lacksRoot,
		"FilesOwners": lacksRoot, "FilesRights": lacksRoot, "TreesRace": lacksRoot,
		"TreesSealed": lacksSeal, "MainProgramLingers": lacksLingering,
	}
	check := checks[name]
	if check == nil && strings.HasPrefix(name, "Uplink") {
		check = lacksUplink
	}
	if check == nil {
		t.Fatal("a provider may not lack this")
	}
	check(t, h)
}

// unimplemented checks that a call failed with an Unimplemented error.
func unimplemented(t *testing.T, what string, err error) {
	t.Helper()
	if brig.KindOf(err) != brig.Unimplemented {
		t.Errorf("%s: %v, want it to be refused as unimplemented", what, err)
	}
}

func lacksPause(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	unimplemented(t, "freeze", in.Pause(t.Context()))
	unimplemented(t, "thaw", in.Resume(t.Context()))
	alive(t, in)
}

func lacksUplink(t *testing.T, h Harness) {
	if h.Provider.Capabilities().Uplinks {
		t.Error("it claims to have uplinks")
	}
	testNoUplink(t, h)
}

// lacksArea checks that the provider claims no enforcement of an area, neither
// in general nor for an instance.
func lacksArea(a brig.Area) func(*testing.T, Harness) {
	return func(t *testing.T, h Harness) {
		_, in := create(t, h, nil)
		machine, err := in.Enforced(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for what, have := range map[string]map[brig.Area]brig.Enforcement{"the provider": h.Provider.Capabilities().Enforces, "a machine": machine} {
			if e := have[a]; e.Level.Meets(brig.LevelGaps) || len(e.Gaps) == 0 {
				t.Errorf("%s says of %s: %+v, want none, and why", what, a, e)
			}
		}
	}
}

// lacksRoot checks that no command runs as root if only one account exists, and
// that the instance's notes report it.
func lacksRoot(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	cmd := portable("id -u")
	cmd.User = "root"
	_, err := try(t.Context(), in, newExecID(), cmd)
	unimplemented(t, "a command of root", err)
	_, err = in.Start(t.Context(), newExecID(), cmd, brig.Streams{})
	unimplemented(t, "a process of root", err)
	root := brig.Path{Name: "/tmp/f", User: "root"}
	_, err = in.Files().Write(t.Context(), root, brig.FileWrite{}, strings.NewReader("x"))
	unimplemented(t, "a file of root's", err)
	_, err = in.Files().MakeDir(t.Context(), root)
	unimplemented(t, "a directory of root's", err)
	if !strings.Contains(strings.Join(in.Notes(), " "), "account") {
		t.Errorf("its notes do not say so: %q", in.Notes())
	}
	if a := run(t, in, portable("id -u")); a.out != "1000\n" {
		t.Errorf("the account that there is: %q", a.out)
	}
}

func lacksSeal(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	unimplemented(t, "seal", unpack(t.Context(), in, brig.UnpackOptions{Sealed: true}, file("a")))
	if e := h.Provider.Capabilities().Enforces[brig.AreaWorkspace]; e.Level.Meets(brig.LevelGaps) {
		t.Errorf("it says of what is sealed: %+v", e)
	}
}

// lacksLingering checks that a held program can still start if it does not
// linger.
func lacksLingering(t *testing.T, h Harness) {
	main := withMain(h, "exit 3", "exit 3")
	_, in := create(t, h, func(s *brig.Spec) { main(s); s.Held = true })
	unimplemented(t, "linger", in.StartMain(t.Context(), true))
	if in.Exit() != nil {
		t.Fatalf("it began all the same: %+v", in.Exit())
	}
	if err := in.StartMain(t.Context(), false); err != nil && in.Exit() == nil {
		t.Fatal(err)
	}
	if e := ended(t, in); e.Code != 3 {
		t.Errorf("exit: %+v", e)
	}
}
