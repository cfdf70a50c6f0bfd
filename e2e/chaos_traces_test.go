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

	"github.com/brig-run/brig/chaos"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/gvisor"
)

// hostOf looks at what belongs to a data folder.
func hostOf(t testing.TB, dir string) *chaos.Host {
	t.Helper()
	h, err := chaos.NewHost(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// groupOf is the cgroup above those of a data folder's sandboxes.
func groupOf(t testing.TB, dir string) string { t.Helper(); return hostOf(t, dir).Group }

// dataDirOf is the data folder of an engine on gVisor.
func dataDirOf(t testing.TB, e *engine.Engine) string {
	t.Helper()
	p, ok := e.Provider.(*gvisor.Provider)
	if !ok {
		t.Fatal("the engine's provider is not gVisor")
	}
	return p.DataDir
}

// dataDir is a data folder from which, when the test is over and its servers
// are dead, everything is removed, so that a test that fails leaves nothing
// running either.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	p, _ := newProvider(t, dir)
	undo(t, func() {
		// A shim that a killed server had only just started may not be one yet
		// when the first sweep looks.
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			if _, err := p.Sweep(context.WithoutCancel(t.Context()), nil); err != nil {
				t.Errorf("sweep: %v", err)
			}
			left, err := os.ReadDir(filepath.Join(dir, "sandboxes"))
			if err != nil || len(left) == 0 || time.Now().After(end) {
				return
			}
		}
	})
	return dir
}

// processes lists the host's processes that belong to a data folder.
func processes(t testing.TB, dir string, except ...int) []chaos.Process {
	t.Helper()
	return hostOf(t, dir).Processes(except...)
}

// folders lists the folders of a data folder's sandboxes.
func folders(t testing.TB, dir string) []string {
	t.Helper()
	out, err := hostOf(t, dir).Folders()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// traces lists everything on the host that belongs to sandboxes of a data
// folder: processes, cgroups, mounts and folders.
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

// filesIn names what is in a folder, for a report.
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

// goneWithin is how long the host may take to forget a sandbox.
const goneWithin = 2 * time.Second

// wantNoTraces fails the test unless, within goneWithin, nothing is left of
// any sandbox of a data folder.
func wantNoTraces(t testing.TB, dir string, except ...int) {
	t.Helper()
	start := time.Now()
	var left []string
	for time.Since(start) < goneWithin {
		if left = traces(t, dir, except...); len(left) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%v later %d things are left:\n%s", goneWithin, len(left), strings.Join(left, "\n"))
}

// wantOnlyPool fails the test unless what a server with nothing to do has on
// the host is exactly what waits in its pool.
func wantOnlyPool(t *testing.T, srv *server) {
	t.Helper()
	svc, why := srv.client(), ""
	// A pool of many takes a busy machine long: the test waits while it changes.
	begin, moved, before := time.Now(), time.Now(), ""
	for ; time.Since(moved) < patience && time.Since(begin) < 8*patience; time.Sleep(20 * time.Millisecond) {
		if why != before {
			moved, before = time.Now(), why
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
		why = fmt.Sprintf("%d wait, %d are being made, and there are folders %v", ready, making, have)
		if making > 0 || len(have) != ready {
			continue
		}
		stranger := func(text string) bool {
			return !slices.ContainsFunc(have, func(id string) bool { return strings.Contains(text, id) })
		}
		if all := hostOf(t, srv.dir).Cgroups(); slices.ContainsFunc(all, stranger) {
			why += fmt.Sprintf(", and a cgroup of %v", all)
			continue
		}
		all := processes(t, srv.dir, srv.cmd.Process.Pid)
		if slices.ContainsFunc(all, func(p chaos.Process) bool { return stranger(p.Cmdline + p.Cgroups) }) {
			why += fmt.Sprintf(", and one of %v", all)
			continue
		}
		return
	}
	t.Error(why)
}
