package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/chaos"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/gvisor"
)

// hostOf provides access to the host resources of a data folder.
func hostOf(t testing.TB, dir string) *chaos.Host {
	t.Helper()
	h, err := chaos.NewHost(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// groupOf returns the parent cgroup of a data folder's sandboxes.
func groupOf(t testing.TB, dir string) string { t.Helper(); return hostOf(t, dir).Group }

// cgroupOf returns the cgroup of a sandbox. It is below its tenant's cgroup, or
// directly below the parent for sandboxes of the pool and of older servers.
func cgroupOf(t testing.TB, dir string, id brig.ID) string {
	t.Helper()
	parent := groupOf(t, dir)
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/cpu"} {
		for _, between := range []string{"/*/", "/"} {
			if found, _ := filepath.Glob(root + parent + between + string(id)); len(found) > 0 {
				return strings.TrimPrefix(found[0], root)
			}
		}
	}
	t.Fatalf("sandbox %s has no cgroup below %s", id, parent)
	return ""
}

// dataDirOf returns the data folder of an engine on gVisor.
func dataDirOf(t testing.TB, e *engine.Engine) string {
	t.Helper()
	p, ok := e.Provider.(*gvisor.Provider)
	if !ok {
		t.Fatal("the engine's provider is not gVisor")
	}
	return p.DataDir
}

// dataDir returns a new data folder. A cleanup removes the folder and its sandboxes after the
// test's servers have exited, so that even a failed test leaves no processes.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	onCleanup(t, func() { removeSandboxes(t, dir) })
	return dir
}

// removeSandboxes removes the remaining sandboxes of a data folder whose servers have exited.
func removeSandboxes(t testing.TB, dir string) {
	t.Helper()
	hasFolders := func() bool {
		there, err := os.ReadDir(filepath.Join(dir, "sandboxes"))
		return err == nil && len(there) > 0
	}
	if !hasFolders() {
		return
	}
	p, _ := newProvider(t, dir)
	// The first sweep may miss a shim that was started just before its server was killed.
	for end := time.Now().Add(promptTimeout); hasFolders() && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err := p.Sweep(context.WithoutCancel(t.Context()), nil); err != nil {
			t.Errorf("sweep: %v", err)
		}
	}
}

// processes lists the processes on the host that belong to a data folder.
func processes(t testing.TB, dir string, except ...int) []chaos.Process {
	t.Helper()
	return hostOf(t, dir).Processes(except...)
}

// folders lists the sandbox directories in a data folder.
func folders(t testing.TB, dir string) []string {
	t.Helper()
	out, err := hostOf(t, dir).Folders()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// traces lists all host resources of the sandboxes in a data folder: processes, cgroups, mounts
// and directories.
func traces(t testing.TB, dir string, except ...int) []string {
	t.Helper()
	var out []string
	for _, p := range processes(t, dir, except...) {
		out = append(out, p.String())
	}
	for _, g := range hostOf(t, dir).Cgroups() {
		out = append(out, "cgroup "+g)
	}
	for _, m := range hostOf(t, dir).Mounts() {
		out = append(out, "mount "+m)
	}
	for _, f := range folders(t, dir) {
		out = append(out, "folder "+f+": "+strings.Join(filesIn(filepath.Join(dir, "sandboxes", f)), " "))
	}
	return out
}

// filesIn lists the files in a directory, for error messages.
func filesIn(dir string) []string {
	var out []string
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimPrefix(name, dir+"/"))
		}
		return nil
	})
	return out
}

// tracesTimeout is the time within which all traces of a sandbox must disappear from the host,
// even if the host is busy.
var tracesTimeout = promptTimeout

// checkNoHostTraces fails the test if traces of sandboxes in a data folder remain on the host
// after tracesTimeout.
func checkNoHostTraces(t testing.TB, dir string, except ...int) {
	t.Helper()
	start := time.Now()
	var remaining []string
	for time.Since(start) < tracesTimeout {
		if remaining = traces(t, dir, except...); len(remaining) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%v later %d things are left:\n%s", tracesTimeout, len(remaining), strings.Join(remaining, "\n"))
}

// checkOnlyPool fails the test unless all of an idle server's sandboxes on the host are in its
// pool.
func checkOnlyPool(t *testing.T, srv *server) {
	t.Helper()
	svc, reason := srv.client(), ""
	// Filling a large pool takes a long time on a busy host, so wait as long as the pool changes.
	begin, moved, before := time.Now(), time.Now(), ""
	for ; time.Since(moved) < promptTimeout && time.Since(begin) < 8*promptTimeout; time.Sleep(20 * time.Millisecond) {
		if reason != before {
			moved, before = time.Now(), reason
		}
		shelves, err := svc.Pool(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ready, making := 0, 0
		for _, s := range shelves {
			ready, making = ready+s.Ready, making+s.Making
		}
		have := folders(t, srv.dir)
		reason = fmt.Sprintf("%d wait, %d are being made, and there are folders %v", ready, making, have)
		if making > 0 || len(have) != ready {
			continue
		}
		stranger := func(text string) bool {
			return !slices.ContainsFunc(have, func(id string) bool { return strings.Contains(text, id) })
		}
		if all := hostOf(t, srv.dir).Cgroups(); slices.ContainsFunc(all, stranger) {
			reason += fmt.Sprintf(", and a cgroup of %v", all)
			continue
		}
		all := processes(t, srv.dir, srv.cmd.Process.Pid)
		if slices.ContainsFunc(all, func(p chaos.Process) bool { return stranger(p.Cmdline + p.Cgroups) }) {
			reason += fmt.Sprintf(", and one of %v", all)
			continue
		}
		return
	}
	t.Error(reason)
}
