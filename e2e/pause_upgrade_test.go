package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/gvisor"
)

// earlierPrograms copies the programs of a provider to a directory, as programs of an earlier
// version. The copies behave like the originals, but have different digests.
func earlierPrograms(t *testing.T, o gvisor.Options, dir string) gvisor.Options {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]*string{"engine": &o.Engine, "shim": &o.Shim, "agent": &o.Agent} {
		b, err := os.ReadFile(*file)
		if err != nil {
			t.Fatal(err)
		}
		*file = filepath.Join(dir, "brig-"+name+"-earlier")
		if err := os.WriteFile(*file, append(b, "earlier"...), 0o500); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// TestSavesOfEarlierVersionAreRestored verifies that a provider of this version can restore saves
// of sandboxes of an earlier version, even if this version saves the sandboxes again or took them
// over before the save. The sandboxes continue in the earlier version's programs, which remain
// until they are no longer needed. The controls are restores without these programs.
//
//suite:part crash
func TestSavesOfEarlierVersionAreRestored(t *testing.T) {
	needRoot(t)
	p, images := newProvider(t, t.TempDir())
	o := p.Options
	o.Programs = filepath.Join(o.DataDir, "bin")
	old := earlierPrograms(t, o, o.Programs)
	earlier, err := gvisor.Open(old)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = gvisor.Open(o); err != nil {
		t.Fatal(err)
	}
	img, err := images.Resolve(t.Context(), brig.HostImage)
	if err != nil {
		t.Fatal(err)
	}
	ctx, lease := t.Context(), time.Now().Add(10*time.Minute)
	spec := func(id brig.ID) brig.Spec {
		return brig.Spec{Name: string(id), Image: img.Digest, Limits: brig.DefaultLimitRange().Default, Pausable: true}
	}
	create := func(id brig.ID) brig.Instance {
		in, err := earlier.Create(ctx, id, spec(id), lease)
		if err != nil {
			t.Fatal(err)
		}
		onCleanup(t, func() { _, _ = p.Sweep(context.WithoutCancel(ctx), nil) })
		instanceShell(t, in, "echo kept >/dev/shm/state; setsid sleep 600 </dev/null >/dev/null 2>&1 &")
		return in
	}
	save := func(in brig.Instance, id brig.ID) {
		if _, err := p.Save(ctx, in, brig.SaveID(id), brig.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	restore := func(id brig.ID) brig.Instance {
		in, err := p.Restore(ctx, brig.SaveID(id), id, spec(id), lease)
		if err != nil {
			t.Fatal(err)
		}
		if got := instanceShell(t, in, "cat /dev/shm/state; cat /proc/[0-9]*/comm | grep -c '^sleep$'"); got != "kept\n1\n" {
			t.Errorf("%s has %q after the restore", id, got)
		}
		for _, name := range []string{"engine", "shim"} {
			if !isRunningProgram(t, o.DataDir, id, "brig-"+name+"-earlier") {
				t.Errorf("%s runs in another %s", id, name)
			}
		}
		if b, err := os.ReadFile(filepath.Join(o.DataDir, "sandboxes", string(id), "order.json")); err != nil || !bytes.Contains(b, []byte("brig-agent-earlier")) {
			t.Errorf("%s runs in another agent: %v", id, err)
		}
		return in
	}
	// wantMissing hides the earlier engine during a restore.
	wantMissing := func(id brig.ID) {
		hidden := filepath.Join(o.DataDir, "hidden")
		if err := os.Rename(old.Engine, hidden); err != nil {
			t.Fatal(err)
		}
		_, err := p.Restore(ctx, brig.SaveID(id), id, spec(id), lease)
		if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "build of the isolation engine") {
			t.Errorf("%s was restored without the engine of its version: %v", id, err)
		}
		if err := os.Rename(hidden, old.Engine); err != nil {
			t.Fatal(err)
		}
	}

	one := create("one")
	if _, err := earlier.Save(ctx, one, "one", brig.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	wantMissing("one")
	one = restore("one")
	save(one, "one") // by this version
	wantMissing("one")
	one = restore("one")

	two, err := p.Recover(ctx, "two", create("two").Handle()) // this version takes over the sandbox
	if err != nil {
		t.Fatal(err)
	}
	save(two, "two")
	wantMissing("two")
	two = restore("two")

	// The programs are needed by a sandbox, and then only by a save.
	past := time.Now().Add(-48 * time.Hour)
	for _, file := range []string{old.Engine, old.Shim, old.Agent} {
		if err := os.Chtimes(file, past, past); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func(keep ...brig.ID) (remaining int) {
		all := map[brig.ID]bool{}
		for _, id := range keep {
			all[id] = true
		}
		if _, err := p.Sweep(ctx, all); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(o.Programs)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	if err := one.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.RemoveSave(ctx, "two"); err != nil {
		t.Fatal(err)
	}
	removeShimPath(t, filepath.Join(o.DataDir, "sandboxes", "two")) // like versions that did not record the shim
	if n := sweep("two"); n != 3 {
		t.Errorf("%d programs remain while a sandbox runs in them", n)
	}
	save(two, "two")
	if err := two.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	if n := sweep("two"); n != 3 {
		t.Errorf("%d programs are left while a save needs them", n)
	}
	restore("two")
	if n := sweep(); n != 0 {
		t.Errorf("%d programs are left that nothing needs", n)
	}
}

// instanceShell runs a script in an instance, and returns its output.
func instanceShell(t *testing.T, in brig.Instance, script string) string {
	t.Helper()
	var out strings.Builder
	res, err := in.Exec(t.Context(), fmt.Sprintf("run-%d", time.Now().UnixNano()), brig.Command{Shell: script, Timeout: promptTimeout}, brig.IO{Stdout: &out, Stderr: &out})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: %+v, %v: %s", script, res, err, out.String())
	}
	return out.String()
}

// removeShimPath removes the path of the shim from a sandbox's order file.
func removeShimPath(t *testing.T, dir string) {
	t.Helper()
	file := filepath.Join(dir, "order.json")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := json.Unmarshal(b, &o); err != nil || o["Shim"] == nil {
		t.Fatalf("the order has no shim: %v", err)
	}
	delete(o, "Shim")
	if b, err = json.Marshal(o); err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// isRunningProgram reports whether a process of a sandbox runs a program with the given file
// name.
func isRunningProgram(t *testing.T, dir string, id brig.ID, name string) bool {
	t.Helper()
	for _, p := range processesOfSandbox(t, dir, id) {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
		if err == nil && filepath.Base(exe) == name {
			return true
		}
	}
	return false
}
