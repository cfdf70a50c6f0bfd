// Package providertest is the one conformance suite of brig.Provider and
// brig.Instance. Every provider passes it, the fake one included, so that what
// is tested against the fake holds for the real ones.
//
// It knows providers by their interface only; what is particular to one, such
// as cgroups and processes of the host, is tested beside it.
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
)

// Harness is the provider under test.
type Harness struct {
	Provider brig.Provider
	// Next opens the provider as a server would that comes after this one, on
	// the same machines. Default: Provider.
	Next func(t *testing.T) brig.Provider
	// Image is the digest of an image with a shell and the usual programs.
	Image string
	// Real says that commands are run by a real shell. Otherwise only the
	// little language of the fake provider is used, and the cases that need
	// more are skipped.
	Real bool
	// FixedName says that a machine's host name cannot be changed, so that one
	// that is bound keeps the one that it had. It has a note that says so.
	FixedName bool
	// ReadOnlyImage says that the files of the image cannot be written, but only
	// those where programs usually write.
	ReadOnlyImage bool
	// Lacks names the cases that the provider cannot be held to, with the
	// reason. Instead it has to refuse what it cannot do, and may not claim it.
	Lacks map[string]string
}

// Run checks a provider. The provider must have no machines of anyone else's:
// the suite sweeps.
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
		{"HangUp", false, testHangUp},
		{"HangUpKillsTheTree", true, testHangUpTree},
		{"Survive", false, testSurvive},
		{"Concurrent", false, testConcurrent},
		{"ExecsRemember", false, testExecsRemember},
		{"HostileExecIDs", true, testHostileExecIDs},
		{"PutAndCollect", false, testPutAndCollect},
		{"PutIsConfined", true, testPutIsConfined},
		{"CollectIsPicky", true, testCollectIsPicky},
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
		{"Keep", false, testKeep},
		{"Bind", false, testBind},
		{"Freeze", true, testFreeze},
		{"Uplink", false, testUplink},
		{"UplinkReplaced", false, testUplinkReplaced},
		{"UplinkEnd", false, testUplinkEnd},
		{"UplinkRecovered", false, testUplinkRecovered},
		{"UplinkBound", false, testUplinkBound},
		{"UplinkFrozen", true, testUplinkFrozen},
		{"UplinkLarge", true, testUplinkLarge},
		{"UplinkSettings", true, testUplinkSettings},
		{"UplinkHostileFiles", true, testUplinkHostileFiles},
	} {
		known[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			if why := h.Lacks[c.name]; why != "" {
				t.Logf("lacks it: %s", why)
				testLack(t, h, c.name)
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

// wait is how long anything may take that should happen at once.
const wait = 10 * time.Second

var ids atomic.Int64

// newID returns an id that was never used.
func newID() brig.ID {
	return brig.ID(fmt.Sprintf("pt%d-%d", time.Now().UnixNano(), ids.Add(1)))
}

// spec is a complete spec, as an engine hands them to a provider.
func (h Harness) spec() brig.Spec {
	return brig.Spec{
		Name: "conformance", Image: h.Image, Limits: brig.DefaultBounds().Default,
		Env: map[string]string{"LAYER": "sandbox", "ONLY": "here"},
	}
}

// create makes a machine that is destroyed when the test ends.
// leaseTime is how long a machine has that no test is longer about, however
// slow the machine that it runs on.
const leaseTime = 10 * time.Minute

func create(t *testing.T, h Harness, change func(*brig.Spec)) (brig.ID, brig.Instance) {
	t.Helper()
	spec := h.spec()
	if change != nil {
		change(&spec)
	}
	id := newID()
	in, err := h.Provider.Create(t.Context(), id, spec, time.Now().Add(leaseTime))
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

// answer is what an execution gave.
type answer struct {
	*brig.Result
	out, err string
}

var execIDs atomic.Int64

func newExecID() string { return fmt.Sprintf("ex%d", execIDs.Add(1)) }

// run runs a command to its end, which must come without an error.
func run(t *testing.T, in brig.Instance, cmd brig.Command) answer {
	t.Helper()
	a, err := try(t.Context(), in, newExecID(), cmd)
	if err != nil {
		t.Fatalf("%q: %v", cmd.Argv, err)
	}
	return a
}

func try(ctx context.Context, in brig.Instance, id string, cmd brig.Command) (answer, error) {
	if cmd.Timeout == 0 {
		cmd.Timeout = wait
	}
	var out, errs bytes.Buffer
	res, err := in.Exec(ctx, id, cmd, brig.IO{Stdout: &out, Stderr: &errs})
	return answer{Result: res, out: out.String(), err: errs.String()}, err
}

// words is a command of words that both a shell's programs and the fake know.
func words(s string) brig.Command { return brig.Command{Argv: strings.Fields(s)} }

// script is a command for a real shell.
func script(s string) brig.Command { return brig.Command{Shell: s} }

// ended waits for a machine's end and returns how it went.
func ended(t *testing.T, in brig.Instance) *brig.Exit {
	t.Helper()
	select {
	case <-in.Done():
	case <-time.After(wait):
		t.Fatalf("the machine has not ended after %v", wait)
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
