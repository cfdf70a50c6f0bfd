package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

var update = flag.Bool("update", false, "write what is found as what is expected")

const goldenPosture = "testdata/posture.json"

// views are the ways to run a program in a sandbox.
var views = []string{"user exec", "root exec", "user run", "root run"}

// TestPostureMatchesGoldenFile verifies that a program's environment and privileges in a sandbox match the
// reviewed golden file. A difference means that the isolation has changed: review the difference
// before you run the test with -update.
//
//suite:part hostile
func TestPostureMatchesGoldenFile(t *testing.T) {
	needRoot(t)
	got := postures(t, views)
	if *update {
		writeGolden(t, got)
	}
	want := readGolden(t)
	for _, view := range views {
		diff := differences(want[view], got[view])
		for _, d := range diff {
			t.Errorf("%s: %s", view, d)
		}
		for fact := range got[view] {
			if id := attackClassOf(fact); id != "" {
				attack.RecordCase(id, fact+", "+view, slices.ContainsFunc(diff, func(d string) bool { return strings.HasPrefix(d, fact+":") }))
			}
		}
	}
}

// attackClassOf returns the ID of a fact's attack class, or "" if the fact does not belong to an
// attack. The longest matching prefix applies.
func attackClassOf(fact string) string {
	best, id := "", ""
	for prefix, of := range map[string]string{
		"caps.": "ESC-01", "call.setuid": "ESC-01", "call.setgid": "ESC-01", "call.setgroups": "ESC-01", "id.no_new_privs": "ESC-01",
		"call.mount": "ESC-02", "call.umount2": "ESC-02", "call.pivot_root": "ESC-02", "call.chroot": "ESC-02", "call.fs": "ESC-02",
		"call.open_tree": "ESC-02", "call.move_mount": "ESC-02", "call.unshare": "ESC-02", "call.clone": "ESC-02", "write.": "ESC-02",
		"call.": "ESC-03", "family.": "ESC-03", "path./proc": "ESC-04", "path./sys": "ESC-04", "writable.": "ESC-04",
		"path./dev": "ESC-05", "call.mknod": "ESC-05", "path./var/run": "ESC-06", "path./run": "ESC-06", "path./var/lib": "ESC-06",
		"fd.": "ESC-07", "path./": "ESC-07", "call.init": "ESC-11", "call.tiocsti": "ESC-12",
	} {
		if strings.HasPrefix(fact, prefix) && len(prefix) > len(best) {
			best, id = prefix, of
		}
	}
	return id
}

// TestPostureDetectsDisabledProtections is the control of TestPostureMatchesGoldenFile: the same comparison must
// detect each disabled protection by the expected facts.
//
//suite:part hostile
func TestPostureDetectsDisabledProtections(t *testing.T) {
	needRoot(t)
	want := readGolden(t)
	for protection, facts := range map[string][]string{
		"capabilities":      {"caps.CapPrm", "caps.CapEff", "caps.CapBnd", "caps.bounding"},
		"no-new-privileges": {"id.no_new_privs"},
		"read-only":         {"mount./usr", "write./usr/bin"},
		"network":           {"net.interface.lo"},
	} {
		t.Run(protection, func(t *testing.T) {
			got := postures(t, []string{"root exec"}, protection)
			diff := differences(want["root exec"], got["root exec"])
			// Record one mutant for each attack class with a visible
			// difference.
			seen := map[string]bool{}
			for _, d := range diff {
				fact, _, _ := strings.Cut(d, ":")
				if id := attackClassOf(fact); id != "" && !seen[id] {
					seen[id] = true
					attack.RecordMutant(id, "what a program sees and may do", protection, true)
				}
			}
			for _, f := range facts {
				if !slices.ContainsFunc(diff, func(d string) bool { return strings.HasPrefix(d, f+":") }) {
					t.Errorf("%s is off and %s does not show it; what differs: %q", protection, f, diff)
				}
			}
		})
	}
}

// postures runs the probe in a separate sandbox for each view.
func postures(t *testing.T, views []string, disabled ...string) map[string]map[string]string {
	t.Helper()
	e, ctx := newEngine(t, disabled...)
	out := map[string]map[string]string{}
	for _, view := range views {
		user, variant, _ := strings.Cut(view, " ")
		var found *brig.Result
		if variant == "run" {
			o, err := e.Run(ctx, brig.Program{
				SandboxName: "posture", Command: []string{probe, "posture"}, User: user, Files: []brig.File{probeFile(t)},
				Env: map[string]string{"ASKED_FOR": "yes"},
			}, brig.IO{})
			if err != nil {
				t.Fatal(err)
			}
			found = &o.Result
		} else {
			if _, err := e.Create(ctx, brig.Spec{Name: "posture", Env: map[string]string{"ASKED_FOR": "yes"}}); err != nil {
				t.Fatal(err)
			}
			in := brig.IO{Stdin: bytes.NewReader(probeFile(t).Data)}
			res, err := e.Exec(ctx, "posture", brig.Command{Shell: "cat > probe && chmod 755 probe"}, in)
			if err != nil || res.ExitCode != 0 {
				t.Fatalf("%+v, %v", res, err)
			}
			if restoresMachines() {
				if _, err := e.Pause(ctx, "posture", brig.PauseOptions{}); err != nil {
					t.Fatal(err)
				}
				noteRestore(t)
			}
			if found, err = e.Exec(ctx, "posture", brig.Command{Argv: []string{probe, "posture"}, User: user}, brig.IO{}); err != nil {
				t.Fatal(err)
			}
			if err := e.Remove(ctx, "posture"); err != nil {
				t.Fatal(err)
			}
		}
		if found.ExitCode != 0 {
			t.Fatalf("%s: %+v: %s", view, found, found.Stderr.Head)
		}
		out[view] = parseFacts(t, string(found.Stdout.Head))
		if user == "root" {
			withoutAgent(out[view])
		}
	}
	return out
}

// withoutAgent removes the effect of the agent's threads from root's process limit. gVisor counts
// the threads as root's processes, and their number varies.
func withoutAgent(facts map[string]string) {
	var soft, hard, limit = 0, 0, brig.DefaultLimitRange().Default.Processes
	n, err := fmt.Sscanf(facts["rlimit.nproc"], "%d %d", &soft, &hard)
	if n == 2 && err == nil && soft == hard && soft > limit && soft <= limit+32 {
		facts["rlimit.nproc"] = fmt.Sprintf("%d %d", limit, limit)
	}
}

// differences lists the facts that differ from the expected facts.
func differences(want, got map[string]string) []string {
	var out []string
	for k, v := range want {
		if g, ok := got[k]; !ok {
			out = append(out, k+": gone, was "+v)
		} else if g != v {
			out = append(out, k+": "+g+", was "+v)
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			out = append(out, k+": new: "+v)
		}
	}
	slices.Sort(out)
	return out
}

// writeGolden writes the golden file. Facts that are the same in all views are under "always";
// the others are under the name of the view.
func writeGolden(t *testing.T, got map[string]map[string]string) {
	t.Helper()
	golden := map[string]map[string]string{"always": {}}
	for _, view := range views {
		golden[view] = map[string]string{}
		for k, v := range got[view] {
			if inAllViews(got, k, v) {
				golden["always"][k] = v
			} else {
				golden[view][k] = v
			}
		}
	}
	b, err := json.MarshalIndent(golden, "", "  ")
	if err == nil {
		err = os.WriteFile(goldenPosture, append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func inAllViews(got map[string]map[string]string, k, v string) bool {
	for _, view := range views {
		if w, ok := got[view][k]; !ok || w != v {
			return false
		}
	}
	return true
}

func readGolden(t *testing.T) map[string]map[string]string {
	t.Helper()
	b, err := os.ReadFile(goldenPosture)
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string]map[string]string
	if err := json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}
	for _, view := range views {
		for k, v := range golden["always"] {
			golden[view][k] = v
		}
	}
	return golden
}
