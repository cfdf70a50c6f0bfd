// Package providertest is the conformance suite of brig.Provider and
// brig.Instance. Every provider passes it, including the fake one, so that
// results of tests with the fake are valid for real providers.
//
// It uses providers only through their interface. Details of a single
// provider, such as cgroups and processes of the host, are tested in that
// provider's package.
package providertest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/race"
	"github.com/brig-run/brig/internal/testenv"
)

// Harness is the provider under test.
type Harness struct {
	Provider brig.Provider
	// Next opens the provider again with the same instances, as a restarted
	// server would. The default returns Provider.
	Next func(t *testing.T) brig.Provider
	// Image is the digest of an image with a shell and the usual programs.
	Image string
	// NewVolume creates an empty volume and returns its ID. A provider without volumes needs none.
	NewVolume func(t *testing.T) string
	// Real reports whether a real shell runs commands. Otherwise the suite uses
	// only the small language of the fake provider, and skips the cases that
	// need a shell.
	Real bool
	// FixedName reports whether an instance's hostname cannot change. A bound
	// instance then keeps its first hostname and reports this in a note.
	FixedName bool
	// ReadOnlyImage reports whether programs can write only to the usual
	// writable directories, and not to the image's files.
	ReadOnlyImage bool
	// Lacks maps the cases that the provider does not support to the reasons.
	// The provider must reject such a feature, and must not claim it.
	Lacks map[string]string
}

// Run checks a provider. The provider must have no other instances, because the
// suite calls Sweep.
func Run(t *testing.T, h Harness) {
	known := map[string]bool{}
	for _, c := range []struct {
		name string
		real bool // needs a real shell
		f    func(*testing.T, Harness)
	}{
		{"Life", false, testLife},
		{"ExitCodes", false, testExitCodes},
		{"Signals", true, testSignals},
		{"Streams", false, testStreams},
		{"Stdin", false, testStdin},
		{"Env", false, testEnv},
		{"Dir", true, testDir},
		{"User", true, testUser},
		{"BadCommands", false, testBadCommands},
		{"Timeout", false, testTimeout},
		{"TimeoutKillsTheTree", true, testTimeoutTree},
		{"HangUp", false, testDisconnect},
		{"HangUpKillsTheTree", true, testDisconnectTree},
		{"Survive", false, testDetachedExec},
		{"Concurrent", false, testConcurrent},
		{"ExecsRemember", false, testExecsRemember},
		{"HostileExecIDs", true, testHostileExecIDs},
		{"PutAndCollect", false, testPutAndCollect},
		{"PutIsConfined", true, testPutIsConfined},
		{"PutIsWhole", true, testPutIsAtomic},
		{"CollectIsPicky", true, testCollectSkipsOthers},
		{"CollectIsBounded", true, testCollectIsBounded},
		{"Trees", false, testTrees},
		{"TreesOwners", true, testTreesOwners},
		{"TreesSealed", true, testTreesSealed},
		{"TreesConfined", true, testTreesConfined},
		{"TreesRace", true, testTreesRace},
		{"Quiet", true, testQuiet},
		{"Changed", true, testChanged},
		{"Logs", false, testLogs},
		{"LogTimes", false, testLogTimes},
		{"MainProgram", false, testMainProgram},
		{"MainProgramMissing", false, testMainProgramMissing},
		{"MainProgramLingers", false, testMainProgramLingers},
		{"MainProgramHeld", false, testMainProgramHeld},
		{"Lease", false, testLease},
		{"Extend", false, testExtend},
		{"StopHard", false, testStopHard},
		{"StopGraceful", true, testStopGraceful},
		{"ExecAfterTheEnd", true, testExecAfterTheEnd},
		{"EndWhileExec", true, testEndWhileExec},
		{"RecoverLive", false, testRecoverLive},
		{"RecoverEnded", false, testRecoverEnded},
		{"RecoverNothing", false, testRecoverNothing},
		{"Sweep", false, testSweep},
		{"Destroy", false, testDestroy},
		{"HostileIDs", true, testHostileIDs},
		{"Process", false, testProcess},
		{"ProcessStdin", true, testProcessStdin},
		{"ProcessSignal", false, testProcessSignal},
		{"ProcessKill", false, testProcessKill},
		{"ProcessEnd", false, testProcessEnd},
		{"ProcessClose", false, testProcessClose},
		{"ProcessRest", true, testProcessRest},
		{"Files", false, testFiles},
		{"FilesPaths", false, testFilesPaths},
		{"FilesRanges", false, testFilesRanges},
		{"FilesWrite", false, testFilesWrite},
		{"FilesSource", false, testFilesSource},
		{"FilesList", false, testFilesList},
		{"FilesMove", false, testFilesMove},
		{"FilesCompose", false, testFilesCompose},
		{"FilesConcurrent", false, testFilesConcurrent},
		{"FilesOwners", true, testFilesOwners},
		{"FilesRights", true, testFilesRights},
		{"FilesLinks", true, testFilesLinks},
		{"FilesOddTypes", true, testFilesOddTypes},
		{"FilesProc", true, testFilesProc},
		{"FilesMounts", true, testFilesMounts},
		{"FilesMany", true, testFilesMany},
		{"FilesTooMany", true, testFilesTooMany},
		{"FilesLarge", true, testFilesLarge},
		{"FilesFull", true, testFilesFull},
		{"FilesEarlyEnd", true, testFilesEarlyEnd},
		{"FilesMetadata", true, testFilesMetadata},
		{"FilesWatch", true, testFilesWatch},
		{"FilesWatchRecursive", true, testFilesWatchRecursive},
		{"FilesWatchBad", true, testFilesWatchBad},
		{"FilesWatchFlood", true, testFilesWatchFlood},
		{"FilesWatchOwner", true, testFilesWatchOwner},
		{"Keep", false, testKeptProcesses},
		{"Bind", false, testBind},
		{"Freeze", true, testPause},
		{"Save", false, testSave},
		{"SaveStays", false, testSaveStays},
		{"SavePacked", false, testSavePacked},
		{"SaveRefused", true, testSaveRefused},
		{"SaveDiffers", false, testSaveDiffers},
		{"SavePrograms", true, testSavePrograms},
		{"SaveFiles", false, testSaveFiles},
		{"BuildRights", false, testBuildRights},
		{"Volume", true, testVolume},
		{"VolumeReadOnly", true, testVolumeReadOnly},
		{"VolumeSave", true, testVolumeSave},
		{"NoVolumes", false, testNoVolumes},
		{"Uplink", false, testUplink},
		{"UplinkReplaced", false, testUplinkReplaced},
		{"UplinkEnd", false, testUplinkEnd},
		{"UplinkRecovered", false, testUplinkRecovered},
		{"UplinkBound", false, testUplinkBound},
		{"UplinkFrozen", true, testUplinkPaused},
		{"UplinkLarge", true, testUplinkLarge},
		{"UplinkSettings", true, testUplinkSettings},
		{"UplinkHostileFiles", true, testUplinkHostileFiles},
	} {
		known[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			if reason := h.Lacks[c.name]; reason != "" {
				t.Logf("lacks it: %s", reason)
				testLacks(t, h, c.name)
				return
			}
			if c.real && !h.Real {
				t.Skip("needs a real shell, which this provider does not have")
			}
			if strings.HasPrefix(c.name, "Uplink") && !h.Provider.Capabilities().Uplinks {
				testNoUplink(t, h)
				return
			}
			c.f(t, h)
		})
	}
	for name := range h.Lacks {
		if !known[name] {
			t.Errorf("it lacks %q, and there is no such case", name)
		}
	}
}

// waitTimeout is the timeout of operations that complete immediately on an idle host.
// promptTimeout is the maximum duration of operations that must not block, even on a
// busy host.
var (
	waitTimeout   = race.ScaleTimeout(30 * time.Second)
	promptTimeout = race.ScaleTimeout(15 * time.Second)
)

var ids atomic.Int64

// newID returns a new unique ID.
func newID() brig.ID {
	return brig.ID(fmt.Sprintf("pt%d-%d", time.Now().UnixNano(), ids.Add(1)))
}

// rootPath returns a path of root, or of the only account if root does not
// exist.
func (h Harness) rootPath(name string) brig.Path {
	if h.Lacks["User"] != "" {
		return at(name)
	}
	return brig.Path{Name: name, User: "root"}
}

// spec returns a complete spec, as an engine passes it to a provider.
func (h Harness) spec() brig.Spec {
	return brig.Spec{
		Name: "conformance", Image: h.Image, Limits: brig.DefaultLimitRange().Default,
		Env: map[string]string{"LAYER": "sandbox", "ONLY": "here"},
	}
}

// instanceLease is the lease of instances in this suite. It is longer than any
// test, even on a slow host.
const instanceLease = 10 * time.Minute

// create creates an instance that is destroyed when the test ends.
func create(t *testing.T, h Harness, change func(*brig.Spec)) (brig.ID, brig.Instance) {
	t.Helper()
	spec := h.spec()
	if change != nil {
		change(&spec)
	}
	id := newID()
	in, err := h.Provider.Create(t.Context(), id, spec, time.Now().Add(instanceLease))
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() { destroy(t, in) })
	return id, in
}

func destroy(t *testing.T, in brig.Instance) {
	t.Helper()
	if err := in.Destroy(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("destroy: %v", err)
	}
}

// execResult is the result of an execution.
type execResult struct {
	*brig.Result
	out, err string
}

var execIDs atomic.Int64

func newExecID() string { return fmt.Sprintf("ex%d", execIDs.Add(1)) }

// run runs a command to its end, and fails the test on an error.
func run(t *testing.T, in brig.Instance, cmd brig.Command) execResult {
	t.Helper()
	a, err := try(t.Context(), in, newExecID(), cmd)
	if err != nil {
		t.Fatalf("%q: %v", cmd.Argv, err)
	}
	return a
}

func try(ctx context.Context, in brig.Instance, id string, cmd brig.Command) (execResult, error) {
	if cmd.Timeout == 0 {
		cmd.Timeout = waitTimeout
	}
	var out, errs bytes.Buffer
	res, err := in.Exec(ctx, id, cmd, brig.IO{Stdout: &out, Stderr: &errs})
	return execResult{Result: res, out: out.String(), err: errs.String()}, err
}

// portable returns a command that both real programs and the fake support.
func portable(s string) brig.Command { return brig.Command{Argv: strings.Fields(s)} }

// script returns a command for a real shell.
func script(s string) brig.Command { return brig.Command{Shell: s} }

// ended waits until an instance ends, and returns its exit.
func ended(t *testing.T, in brig.Instance) *brig.Exit {
	t.Helper()
	select {
	case <-in.Done():
	case <-time.After(waitTimeout):
		t.Fatalf("the machine has not ended after %v", waitTimeout)
	}
	e := in.Exit()
	if e == nil {
		t.Fatal("Done is closed and Exit is nil")
	}
	return e
}

func alive(t *testing.T, in brig.Instance) {
	t.Helper()
	select {
	case <-in.Done():
		t.Fatalf("the machine has ended: %+v", in.Exit())
	default:
	}
	if e := in.Exit(); e != nil {
		t.Errorf("Exit of a live machine: %+v", e)
	}
}

// Agent returns the path of the guest agent, for providers that copy it.
func Agent(t *testing.T) string {
	t.Helper()
	return testenv.Bin(t, "brig-agent")
}
