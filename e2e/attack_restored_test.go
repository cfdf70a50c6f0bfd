package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/gvisor"
)

// restoresEnv is the environment variable with the path of a file to which tests add a line for
// each restored sandbox. TestAttacksAfterRestore sets it.
const restoresEnv = "BRIG_TEST_RESTORES"

// restoresMachines reports whether TestAttacksAfterRestore runs this test. The sandboxes
// of the test are then saved and restored before they are used.
func restoresMachines() bool { return os.Getenv(restoresEnv) != "" }

// noteRestore records a restored sandbox in the file that restoresEnv names.
func noteRestore(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile(os.Getenv(restoresEnv), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(t.Name() + "\n"); err != nil {
		t.Fatal(err)
	}
}

// restored saves an instance and returns an instance that is restored from the save. An instance
// with a gofer, as in some controls, cannot be saved.
func restored(t testing.TB, p *gvisor.Provider, in brig.Instance, spec brig.Spec, lease time.Time) brig.Instance {
	t.Helper()
	id := brig.SaveID(spec.Name)
	_, err := p.Save(t.Context(), in, id, brig.SaveOptions{})
	if brig.KindOf(err) == brig.Unimplemented {
		return in
	}
	if err != nil {
		t.Fatal(err)
	}
	if in, err = p.Restore(t.Context(), id, brig.ID(id), spec, lease); err != nil {
		t.Fatal(err)
	}
	if err := p.RemoveSave(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	noteRestore(t)
	return in
}

// TestAttacksAfterRestore runs the tests of permissions and of attacks from inside, including
// their controls, on sandboxes that were saved with their memory and restored. The results must
// be the same as on booted sandboxes.
//
//suite:part hostile full
func TestAttacksAfterRestore(t *testing.T) {
	needRoot(t)
	for _, name := range []string{
		"TestPostureMatchesGoldenFile", "TestHostProcessPrivileges", "TestPostureFiles", "TestPostureDescriptors", "TestCPUIDIsNotEmulated",
		"TestAttackAgent", "TestAttackCanary", "TestAttackKilledAgent", "TestAttackStoppedAgent", "TestAttackDevices",
		"TestAttackDisk", "TestAttackInodes", "TestAttackOpenFiles", "TestAttackProcesses", "TestAttackExhaustExceedsHigherLimits",
		"TestAttackSignals", "TestAttackFingerprint", "TestAttackOverwrite", "TestAttackSockets",
		"TestAttackOpensFollowNoLink", "TestAttackTreesFollowNoLink", "TestDiskLimitIsExact", "TestRefusalsAreCounted",
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+name+"$", "-test.v", "-test.count=1")
			restores := filepath.Join(t.TempDir(), "restores")
			cmd.Env = append(os.Environ(), restoresEnv+"="+restores)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if _, err := os.Stat(restores); err != nil {
				t.Errorf("the test restored no sandbox: %v", err)
			}
		})
	}
}
